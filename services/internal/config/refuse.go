package config

import "slices"

// notYet are the keys of parts that are planned and not built. They are refused by name, so that nobody believes them
// to be at work.
var notYet = []string{
	"quarantine", "rate_limits", "routes", "claim_check", "storage", "backup", "lifecycle", "audit", "auth", "tracing",
	"node.region", "admin.auth", "queue", "egress.policy", "egress.pools", "http.trusted_proxies",
}

// never are the keys of the single-process design that have no meaning here, with what to do instead.
var never = map[string]string{
	"wal":                "every source is durable in the store",
	"source_store":       "sources live in the store",
	"batcher.partitions": "the store decides the partitions: store.partitions",
	"node.roles":         "each process has its role; `ankusa serve` has all",
	"node.data_dir":      "say store.dir",
}

// refusedVariables override keys of parts that are not built.
var refusedVariables = []string{
	"ANKUSA_ROLES", "ANKUSA_CLAIM_CHECK_PORT", "ANKUSA_CLAIM_CHECK_IP", "ANKUSA_ROUTES_ENABLED",
	"ANKUSA_ROUTES_STORE_URL", "ANKUSA_SOURCE_STORE_URL", "ANKUSA_WAL_TYPE", "ANKUSA_STORAGE_TYPE", "ANKUSA_S3_BUCKET",
	"ANKUSA_S3_REGION", "ANKUSA_S3_ENDPOINT", "ANKUSA_GCS_BUCKET", "ANKUSA_STORAGE_KEY_PREFIX", "ANKUSA_BACKUP_ENABLED",
}

// unknown says why a key that no field has is refused.
func unknown(path string) string {
	if slices.Contains(notYet, path) {
		return "is not supported yet"
	}
	if instead, ok := never[path]; ok {
		return "is not supported: " + instead
	}
	return "is not a known key"
}

func refuseVariables(env Environment, f *faults) {
	for _, name := range refusedVariables {
		if value, _ := env.lookup(name); value != "" {
			f.add(name, 0, "is not supported yet")
		}
	}
}
