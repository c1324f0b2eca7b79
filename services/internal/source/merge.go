package source

// KeepSecrets gives a source that is to replace old the secrets that it left out or shows as [REDACTED]: those of the
// verifier where its type stays, those of each sink where a sink of the same type stands at the same index. It is called
// between decoding and validation.
func (s *Source) KeepSecrets(old *Source) {
	if s.Verify.Type == old.Verify.Type {
		s.Verify.Secrets = keep(s.Verify.Secrets, old.Verify.Secrets)
	}
	for i := range min(len(s.Sinks), len(old.Sinks)) {
		if s.Sinks[i].Type == old.Sinks[i].Type {
			s.Sinks[i].HTTP.keepSecrets(old.Sinks[i].HTTP)
		}
	}
}

func (h *HTTP) keepSecrets(old HTTP) {
	if !h.AllowUnsigned || len(h.Secrets) > 0 {
		h.Secrets = keep(h.Secrets, old.Secrets)
	}
	for name, value := range h.Headers {
		if stored, had := old.Headers[name]; had && value.Reveal() == Redacted {
			h.Headers[name] = stored
		}
	}
}

// keep returns the stored secrets for none; a single placeholder stands for all of them, and among several one stands
// for the stored secret at its index.
func keep(list, stored []Secret) []Secret {
	if len(list) == 0 || allRedacted(list) {
		return stored
	}
	merged := make([]Secret, len(list))
	for i, s := range list {
		if merged[i] = s; s.Reveal() == Redacted && i < len(stored) {
			merged[i] = stored[i]
		}
	}
	return merged
}

func allRedacted(list []Secret) bool {
	for _, s := range list {
		if s.Reveal() != Redacted {
			return false
		}
	}
	return true
}
