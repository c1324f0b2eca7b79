package archtest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestImportsPointDown(t *testing.T) {
	tree, err := Read("../../..")
	require.NoError(t, err)
	require.Greater(t, len(tree.Packages), 20)
	require.Greater(t, len(tree.Imports), 200)
	require.Empty(t, Judge(tree, Rules()), "see the tree and the import rules in docs/architecture.md")
}

func TestEveryRuleFindsItsBreach(t *testing.T) {
	const services = "ankusa.dev/services/internal/"
	breaches := map[string]Import{
		"hook: the standard library only":                  {From: services + "hook", To: "go.uber.org/zap"},
		"ferry: no dependency, tests included":             {From: "ankusa.dev/ferry", To: "pgregory.net/rapid", Test: true},
		"drivers are chosen in mains and tests":            {From: services + "store", To: services + "kv/local"},
		"client-go below kv/tikv only":                     {From: services + "store", To: "github.com/tikv/client-go/v2/kv"},
		"pebble below kv/local only":                       {From: services + "store", To: "github.com/cockroachdb/pebble/v2"},
		"boot knows no role and no store":                  {From: services + "boot", To: services + "store"},
		"what boots a role knows no other role":            {From: services + "boot/ingestboot", To: services + "sinkrunner"},
		"only mains and tests boot":                        {From: services + "ingest", To: services + "boot"},
		"roles do not know each other":                     {From: services + "ingest/accept", To: services + "scheduler/core"},
		"gRPC codes at the RPC edge only":                  {From: services + "scheduler/core", To: "google.golang.org/grpc/codes"},
		"the domain does not know protos":                  {From: services + "source", To: "ankusa.dev/proto/gen/ankusa/admin/v1"},
		"proto, gateway and e2e do not know the services":  {From: "ankusa.dev/gateway", To: services + "store"},
		"proto and gateway know no other module but proto": {From: "ankusa.dev/gateway", To: "ankusa.dev/ferry"},
		"e2e sees generated protos alone":                  {From: "ankusa.dev/e2e", To: "ankusa.dev/proto"},
		"nothing imports e2e":                              {From: "ankusa.dev/services/ankusa", To: "ankusa.dev/e2e/checker"},
	}
	for layer := range above {
		breaches[layer+" imports only what is below it"] = Import{From: services + layer, To: services + "ingest/accept"}
	}
	for _, r := range Rules() {
		breach, seeded := breaches[r.Name]
		require.True(t, seeded, "no breach for the rule %q", r.Name)
		require.True(t, r.Forbids(breach), "the rule %q does not find %v", r.Name, breach)
	}
}

func TestAPackageWithoutARoleIsFound(t *testing.T) {
	tree := Tree{Packages: map[string]string{"ankusa.dev/services/internal/x": "helpers"}}
	found := Judge(tree, nil)
	require.Len(t, found, 1)
	require.True(t, strings.HasSuffix(found[0], "is called helpers"))
}

func TestABinaryHoldsItsOwnRoleAlone(t *testing.T) {
	tree, err := Read("../../..")
	require.NoError(t, err)
	const internal = "ankusa.dev/services/internal/"
	roles := map[string]string{
		"ingest": internal + "ingest", "scheduler": internal + "scheduler", "sinkrunner": internal + "sinkrunner",
		"gateway": "ankusa.dev/gateway",
	}
	for main, own := range roles {
		reached := tree.Reach("ankusa.dev/services/" + main)
		for _, role := range roles {
			require.Equal(t, role == own, reached[role], "%s and %s", main, role)
		}
		require.Equal(t, main != "gateway", reached[internal+"store"], "%s and the store", main)
		require.Equal(t, main != "gateway", reached[internal+"kv/tikv"], "%s and its driver", main)
		require.False(t, reached[internal+"kv/local"], "%s and the embedded driver", main)
	}
}
