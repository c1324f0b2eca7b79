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

func TestOnlyThePackagesThatAreNamedChooseDrivers(t *testing.T) {
	const services = "ankusa.dev/services/"
	for from, breach := range map[string]bool{
		"ankusa": false, "internal/benchcmd/bench": false, "internal/benchcmd/seed": false,
		"internal/benchcmd": true, "internal/benchcmd/stage": true, "internal/benchcmd/bench/more": true, "ankusa/more": true,
	} {
		found := Judge(Tree{Imports: []Import{{From: services + from, To: services + "internal/kv/local"}}}, processes())
		require.Equal(t, breach, len(found) == 1, "%s: %v", from, found)
	}
	found := Judge(Tree{Imports: []Import{{From: services + "ankusa/more", To: services + "internal/boot"}}}, processes())
	require.Len(t, found, 1)
}

func TestFilesAndFunctionsFitTheirBounds(t *testing.T) {
	found, err := Oversized("../../..")
	require.NoError(t, err)
	require.Empty(t, found, "at most 500 lines for a file, 60 for a function")
}

func TestWhatIsOverTheBoundsIsFound(t *testing.T) {
	function := func(lines int) string { return "func f() {" + strings.Repeat("\n", lines-1) + "}\n" }
	for name, c := range map[string]struct {
		src  string
		want []string
	}{
		"within":    {"package x\n" + function(60) + strings.Repeat("\n", 500-61), nil},
		"function":  {"package x\n" + function(61), []string{"x.go: f has 61 lines"}},
		"file":      {"package x\n" + strings.Repeat("\n", 500), []string{"x.go has 501 lines"}},
		"generated": {"// Code generated by hand. DO NOT EDIT.\n\npackage x\n" + function(900), nil},
	} {
		found, err := oversized("x.go", c.src)
		require.NoError(t, err, name)
		require.Equal(t, c.want, found, name)
	}
}
