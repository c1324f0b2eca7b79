package store

// Class says what a key is for, as one of a few words: the label of metrics about calls. Those of an idle system are
// lease, writer, runner, gc and ready.
func Class(key []byte) string {
	if len(key) < 2 {
		return "other"
	}
	if key[0] == clusterSpace {
		switch key[1] {
		case famLeader:
			return "lease"
		case famWriter:
			return "writer"
		case famRunner:
			return "runner"
		case famProbe:
			return "ready"
		case famSource, famGuard:
			return "source"
		default:
			return "cluster"
		}
	}
	switch key[1] {
	case famFence:
		return "settle"
	case famEpoch:
		return "epoch"
	case famCounter:
		return "counter"
	case famDue, famLane:
		return "row" // the leader's reads, and the runners' with hook and epoch
	case famDead, famDeadTime:
		return "dead"
	case famExpiry:
		return "gc"
	case famEvent, famHistory:
		return "history"
	default:
		return "hook"
	}
}
