package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// variables makes an environment of a map, without files.
func variables(set map[string]string) Environment {
	return Environment{
		Lookup: func(name string) (string, bool) {
			value, ok := set[name]
			return value, ok
		},
		ReadFile: func(string) ([]byte, error) { return nil, os.ErrNotExist },
	}
}

func parseText(t *testing.T, text string, set map[string]string) (Config, error) {
	t.Helper()
	return Parse("ankusa.yml", []byte(text), RoleAll, variables(set))
}

// faultsOf is what the error says, a line each, without the path.
func faultsOf(t *testing.T, err error) []string {
	t.Helper()
	var e *Error
	require.ErrorAs(t, err, &e)
	lines := strings.Split(strings.ReplaceAll(e.Error(), "ankusa.yml:", ""), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return lines
}

func TestAnEmptyFileIsTheDefault(t *testing.T) {
	for _, text := range []string{"", "# nothing\n", "http:\nlog: {}\n"} {
		c, err := parseText(t, text, nil)
		require.NoError(t, err)
		require.Equal(t, Default(), c)
	}
	require.NoError(t, Default().Validate())
}

func TestEveryGroupIsRead(t *testing.T) {
	c, err := parseText(t, `
node: {instance: eu-1}
http: {port: 0, prefix: /, routing: tenant_path, header_timeout_ms: 1500}
dispatch:
  concurrency: 12
  sink_concurrency: null
  retry: {max_attempts: 3, jitter: false}
  tenants: {default: {max_inflight: 10}, acme: {max_inflight_bytes: 5}}
store: {type: tikv, pd: ["pd-0:2379", "pd-1:2379"]}
scheduler: {lease_ms: 1000, renew_ms: 300, runner_grace_ms: 5000, history_retention_hours: 2}
egress: {allow_http: true, allow_cidrs: [127.0.0.0/8, "::1/128"], ports: [80, 443]}
`, nil)
	require.NoError(t, err)
	require.Equal(t, "eu-1", c.Node.Instance)
	require.Equal(t, 1500*time.Millisecond, c.HTTP.HeaderTimeout)
	require.Equal(t, 12, *c.Dispatch.Concurrency)
	require.Nil(t, c.Dispatch.SinkConcurrency)
	require.EqualValues(t, 3, c.Dispatch.RetryPolicy().MaxAttempts)
	require.Equal(t, 10, *c.Dispatch.Tenants["default"].MaxInflight)
	require.EqualValues(t, 5, *c.Dispatch.Tenants["acme"].MaxInflightBytes)
	require.Equal(t, []string{"pd-0:2379", "pd-1:2379"}, c.Store.PD)
	require.Equal(t, 2*time.Hour, c.Scheduler.HistoryRetention)
	require.Equal(t, "::1/128", c.Egress.AllowCIDRs[1].String())
	require.Equal(t, []int{80, 443}, c.Egress.Ports)
}

func TestAllFaultsAreNamedAtOnceWithKeyAndLine(t *testing.T) {
	_, err := parseText(t, `http:
  port: 70000
  prot: 1
  routing: guess
batcher: {max_batch: many, max_delay_ms: -1}
log: [info]
scheduler:
  runner_grace_ms: 12999
egress:
  ports: [80, 0]
  allow_cidrs:
    - 10.0.0.0
`, nil)
	require.Equal(t, []string{
		`2: http.port must be 0 to 65535, got 70000`,
		`3: http.prot is not a known key`,
		`4: http.routing must be one of path, tenant_path, got "guess"`,
		`5: batcher.max_batch must be a whole number, got "many"`,
		`5: batcher.max_delay_ms must be 0 to 1000, got -1`,
		`6: log must be a mapping, got a list`,
		`8: scheduler.runner_grace_ms must be at least 2 × lease_ms + 3000, which is 13000, got 12999`,
		`10: egress.ports.1 must be 1 to 65535, got 0`,
		`12: egress.allow_cidrs.0 must be a CIDR block, got "10.0.0.0"`,
	}, faultsOf(t, err))
}

func TestKeysOfPartsThatDoNotExistAreRefusedByName(t *testing.T) {
	_, err := parseText(t, "quarantine: {burst: 1}\nrate_limits: {}\nwal: {type: disk}\nnode: {roles: [edge]}\n",
		map[string]string{"ANKUSA_ROUTES_ENABLED": "true"})
	require.Equal(t, []string{
		"ANKUSA_ROUTES_ENABLED is not supported yet",
		"1: quarantine is not supported yet",
		"2: rate_limits is not supported yet",
		"3: wal is not supported: every source is durable in the store",
		"4: node.roles is not supported: each process has its role; `ankusa serve` has all",
	}, faultsOf(t, err))
}

func TestWhatIsNotAPlainMappingIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"- 1\n":                              "the file must be a mapping, got something else",
		"http: {port: 1, port: 2}":           "mapping key",
		"log: {level: info}\n---\na: 1":      "one document",
		"log: &a {level: info}\n":            "log must be a plain value, got anchor",
		"http: {port: !!int 4}\n":            "http.port must be a plain value, got tag",
		"http: {port: 1":                     "not YAML",
		"http: {port: 99999999999999999999}": "http.port must be",
		"node: {instance: 7}":                "node.instance must be text, got 7",
		"store: {dir: ${D}, type: local}":    "a value with ${ must be quoted",
		"http: {port: null}":                 "http.port must be a whole number, got null",
	} {
		_, err := parseText(t, text, nil)
		require.Error(t, err, text)
		require.Contains(t, err.Error(), strings.TrimPrefix(want, "1: "), text)
	}
}

func TestVariablesAndFilesAreTakenAsText(t *testing.T) {
	env := variables(map[string]string{"PORT_NUMBER": "4123", "NAME": "a: b", "ON": "true", "EMPTY": "", "NESTED": "${NAME}"})
	env.ReadFile = func(path string) ([]byte, error) {
		require.Equal(t, "/run/secrets/dir", path)
		return []byte("/srv/x\n"), nil
	}
	c, err := Parse("f", []byte(`
http: {port: "${PORT_NUMBER}"}
admin: {enabled: "${ON}", port: "${MISSING:-4999}"}
store: {dir: "${file:/run/secrets/dir}/$${kept}/${EMPTY:-y}/${NESTED}"}
`), RoleAll, env)
	require.NoError(t, err)
	require.Equal(t, 4123, c.HTTP.Port)
	require.True(t, c.Admin.Enabled)
	require.Equal(t, 4999, c.Admin.Port)
	require.Equal(t, "/srv/x/${kept}/y/${NAME}", c.Store.Dir)
}

func TestAReferenceThatCannotBeResolvedNamesItsKey(t *testing.T) {
	_, err := parseText(t, `
store: {dir: "${NOPE}"}
node: {instance: "${sm:aws:thing}"}
log: {level: "${file:relative}"}
http:
  prefix: "${file:/nothing}"
  routing: "${not a name}"
  ip: "${OPEN"
`, nil)
	require.Equal(t, []string{
		"2: store.dir must be resolvable, got ${NOPE}, and that variable is not set",
		"3: node.instance ${sm:…} is not supported yet",
		"4: log.level must name a file by an absolute path, got ${file:relative}",
		"6: http.prefix must be resolvable, got ${file:/nothing}: file does not exist",
		"7: http.routing must hold ${VAR}, ${VAR:-default} or ${file:/path}, got ${not a name}",
		"8: http.ip must close each ${ with }, got one that is open",
	}, faultsOf(t, err))
}

func TestL48_AFaultDoesNotShowWhatAVariableHeld(t *testing.T) {
	_, err := parseText(t, `http: {port: "${SECRET}"}`, map[string]string{"SECRET": "hunter2"})
	require.Error(t, err)
	require.NotContains(t, err.Error(), "hunter2")
	require.Contains(t, err.Error(), `got "${SECRET}"`)
}

// A secret under the wrong key is refused by what judges the whole configuration, which knows of no variables.
func TestL48_ARefusedValueIsShownAsItWasWritten(t *testing.T) {
	_, err := parseText(t, `
node: {instance: "${SECRET}"}
store: {type: "${SECRET}"}
rpc: {listen: "${SECRET}"}
peers: {ingest: ["x:1", "${SECRET}"]}
sources:
  a:
    verify: {type: hmac, secret: x, signature_header: "pre-${SECRET}"}
    dedupe: {json: "${SECRET}"}
    sinks: [{type: "${SECRET}"}]
`, map[string]string{"SECRET": "hunter2 hunter2"})
	require.Error(t, err)
	require.NotContains(t, err.Error(), "hunter2")
	found := faultsOf(t, err)
	require.Contains(t, found, `2: node.instance must be 1 to 64 of [A-Za-z0-9_-], got "${SECRET}"`)
	require.Contains(t, found, `5: peers.ingest.1 must be host:port, got "${SECRET}"`)
	require.Contains(t, found, `8: sources.a.verify.signature_header must be a header name, got "pre-${SECRET}"`)
	require.Contains(t, found, `10: sources.a.sinks.0.type must be one of log, http, got "${SECRET}"`)
}

func TestAReferenceToAFileWithoutAnEndIsRefused(t *testing.T) {
	_, err := Parse("ankusa.yml", []byte(`node: {instance: "${file:/dev/zero}"}`), RoleAll, Environment{})
	require.Equal(t, []string{
		"1: node.instance must be resolvable, got ${file:/dev/zero}: more than 1048576 bytes",
	}, faultsOf(t, err))
}

func TestL48_ASyntaxErrorDoesNotQuoteTheFile(t *testing.T) {
	_, err := parseText(t, "sources:\n  a: {verify: {secret: hunter2]}\n", nil)
	require.Error(t, err)
	require.NotContains(t, err.Error(), "hunter2")
}

func TestVariablesOverrideTheFile(t *testing.T) {
	text := "http: {port: 1}\nadmin: {port: 2}\nlog: {level: debug}\nstore: {dir: /a}\n"
	c, err := parseText(t, text, map[string]string{
		"PORT": "11", "ANKUSA_ADMIN_PORT": "12", "ANKUSA_ADMIN_IP": "::1", "ANKUSA_LOG_LEVEL": "error",
		"ANKUSA_DATA_DIR": "/b", "ANKUSA_RPC_LISTEN": "127.0.0.1:0",
	})
	require.NoError(t, err)
	require.Equal(t, 11, c.HTTP.Port)
	require.Equal(t, 12, c.Admin.Port)
	require.Equal(t, "::1", c.Admin.IP)
	require.Equal(t, "error", c.Log.Level)
	require.Equal(t, "/b", c.Store.Dir)
	require.Equal(t, "127.0.0.1:0", c.RPC.Listen)

	c, err = parseText(t, text, map[string]string{"PORT": "11", "ANKUSA_HTTP_PORT": "13"})
	require.NoError(t, err)
	require.Equal(t, 13, c.HTTP.Port)

	_, err = parseText(t, text, map[string]string{"PORT": "x", "ANKUSA_ADMIN_PORT": "70000"})
	require.Equal(t, []string{
		`http.port must be a whole number, got "x" from PORT`,
		"admin.port must be 0 to 65535, got 70000 from ANKUSA_ADMIN_PORT",
	}, faultsOf(t, err))
}

func TestAProcessOfItsOwnNeedsASharedStoreAndItsPeers(t *testing.T) {
	_, err := Parse("ankusa.yml", []byte("store: {type: local}\n"), RoleIngest, variables(nil))
	require.Equal(t, []string{
		"peers.scheduler must be at least one address for the ingest process, got none",
		`1: store.type must be tikv for the ingest process, as the local store serves one process only, got "local"`,
	}, faultsOf(t, err))
	_, err = Parse("f", []byte("store: {type: tikv, pd: ['127.0.0.1:2379']}"), RoleScheduler, variables(nil))
	require.NoError(t, err)
}

func TestStoreKeysMustFitItsType(t *testing.T) {
	_, err := parseText(t, "store: {type: tikv, partitions: 254, tls: {cert: a}}\n", nil)
	require.Equal(t, []string{
		"1: store.partitions must be 1 to 253, got 254",
		`1: store.tls.key must be given, as cert, key and ca belong together, got ""`,
		`1: store.tls.ca must be given, as cert, key and ca belong together, got ""`,
		"1: store.pd must be at least one address where store.type is tikv, got none",
	}, faultsOf(t, err))
	_, err = parseText(t, "http: {max_body_bytes: 25165825}\nstore: {type: tikv, pd: ['127.0.0.1:2379']}\n", nil)
	require.Equal(t, []string{"1: http.max_body_bytes must be at most 25165824 where store.type is tikv, got 25165825"}, faultsOf(t, err))
	_, err = parseText(t, "http: {max_body_bytes: 67108864}\nbatcher: {max_queue_bytes: 67108864}\n", nil)
	require.NoError(t, err)
	_, err = parseText(t, "store: {type: tikv, pd: ['a:1'], key_prefix: a/b, patience_ms: 99}\n", nil)
	require.Equal(t, []string{
		`1: store.key_prefix must be 1 to 64 of [A-Za-z0-9_-], got "a/b"`,
		"1: store.patience_ms must be 100 to 60000, got 99",
	}, faultsOf(t, err))
	_, err = parseText(t, "store: {key_prefix: b, patience_ms: 5000}\n", nil)
	require.Equal(t, []string{
		`1: store.key_prefix must be absent where store.type is local, got "b"`,
		"1: store.patience_ms must be absent where store.type is local, got 5000",
	}, faultsOf(t, err))
	_, err = parseText(t, "store: {pd: [nowhere], dir: ''}\n", nil)
	require.Equal(t, []string{
		`1: store.pd.0 must be host:port, got "nowhere"`,
		"1: store.pd must be empty where store.type is local, got 1",
		`1: store.dir must be a directory where store.type is local, got ""`,
	}, faultsOf(t, err))
}

func TestI11_ConnectionsAndStreamsAreBounded(t *testing.T) {
	_, err := parseText(t, "http: {max_connections: 0}\nrpc: {max_connections: 65537, max_streams: 15}\n", nil)
	require.Equal(t, []string{
		"1: http.max_connections must be 1 to 1000000, got 0",
		"2: rpc.max_connections must be 1 to 65536, got 65537",
		"2: rpc.max_streams must be 16 to 65536, got 15",
	}, faultsOf(t, err))
}

func TestAMissingFileIsAFault(t *testing.T) {
	_, err := Load(t.TempDir()+"/none.yml", RoleAll, variables(nil))
	var e *Error
	require.True(t, errors.As(err, &e))
	require.Contains(t, err.Error(), "must be readable")
}

func TestPathComesFromFlagThenVariableThenDefault(t *testing.T) {
	env := variables(map[string]string{"ANKUSA_CONFIG": "/b"})
	require.Equal(t, "/a", Path("/a", env))
	require.Equal(t, "/b", Path("", env))
	require.Equal(t, DefaultPath, Path("", variables(nil)))
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("http: {port: 1}\nsources:\n  a: {verify: {type: none}, sinks: [{type: log}]}\n"))
	f.Add([]byte("a: &x [1]\nb: *x\n<<: *x\n? [k]\n: !t v\n"))
	f.Add([]byte("store: {dir: \"${A:-${B}}\"}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := Parse("f", text, RoleAll, variables(nil))
		if err == nil {
			require.NoError(t, c.Validate())
		}
	})
}

const sourcesText = `
sources:
  stripe:
    tenant: acme
    verify: {type: stripe, secret: ["${NEW}", "${OLD}"]}
    sinks:
      - {type: http, url: "https://example.com/in", secret: "${SIGN}"}
      - type: log
http: {routing: tenant_path}
`

func TestSourcesAreReadByTheRulesOfTheRest(t *testing.T) {
	secrets := map[string]string{"NEW": "new-s3cret", "OLD": "old-s3cret", "SIGN": "sign-s3cret"}
	c, err := parseText(t, sourcesText, secrets)
	require.NoError(t, err)
	require.Len(t, c.Sources, 1)
	require.Equal(t, "acme.stripe", c.Sources[0].ID())
	require.Equal(t, "new-s3cret", c.Sources[0].Verify.Secrets[0].Reveal())

	_, err = parseText(t, `sources:
  open:
    verify: {type: none}
    sinks:
      - {type: http, url: "http://example.com/", allow_unsigned: true}
  odd: {verify: {type: none}, sinks: [], colour: red, trust_url_tenant: true}
http: {routing: tenant_path}
`, nil)
	got := faultsOf(t, err)
	require.Len(t, got, 4)
	require.Contains(t, got[0], "2: sources.open.trust_url_tenant must be true")
	require.Contains(t, got[1], "5: sources.open.sinks.0.url must be allowed by egress: https, or http where egress.allow_http is true")
	require.Contains(t, got[2], "6: sources.odd.colour must be absent")
	require.Contains(t, got[3], "6: sources.odd.sinks must be")
}

func TestL48_ThePrintedConfigurationHoldsNoSecret(t *testing.T) {
	secrets := map[string]string{"NEW": "new-s3cret", "OLD": "old-s3cret", "SIGN": "sign-s3cret"}
	c, err := parseText(t, sourcesText, secrets)
	require.NoError(t, err)
	text, err := c.JSON()
	require.NoError(t, err)
	require.NotContains(t, string(text), "s3cret")
	require.NotContains(t, fmt.Sprintf("%+v %#v", c, c), "s3cret")

	var shown map[string]any
	require.NoError(t, json.Unmarshal(text, &shown))
	require.EqualValues(t, 10000, shown["http"].(map[string]any)["header_timeout_ms"])
	require.EqualValues(t, 168, shown["scheduler"].(map[string]any)["history_retention_hours"])
	require.Nil(t, shown["dispatch"].(map[string]any)["concurrency"])
	verify := shown["sources"].(map[string]any)["acme.stripe"].(map[string]any)["verify"].(map[string]any)
	require.Equal(t, []any{"[REDACTED]", "[REDACTED]"}, verify["secret"])
}

func TestThePrintedConfigurationCanBeReadAgain(t *testing.T) {
	c, err := parseText(t, "dispatch: {tenants: {acme: {concurrency: 2}}}\negress: {allow_cidrs: [10.0.0.0/8]}\n", nil)
	require.NoError(t, err)
	text, err := c.JSON()
	require.NoError(t, err)
	again, err := parseText(t, string(text), nil)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(c, again, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmpopts.EquateEmpty()))
}

func TestAFileThatIsTooLargeIsNotRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ankusa.yml")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Truncate(path, maxFile+1))
	env := variables(nil)
	for name, load := range map[string]func() error{
		"load":    func() error { _, err := Load(path, RoleAll, env); return err },
		"again":   func() error { _, err := LoadAgain(path, RoleAll, env); return err },
		"sources": func() error { _, err := LoadSources(path, env); return err },
	} {
		require.ErrorContains(t, load(), "the file must be at most 16777216 bytes, got more", name)
	}
}
