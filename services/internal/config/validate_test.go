package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNumbersAreWrittenAsTheyAreMeant(t *testing.T) {
	for _, number := range []string{"0777", "0o777", "0x1F", "0b11", "+5", "00", "-0"} {
		_, err := parseText(t, "http: {port: "+number+"}\n", nil)
		require.Equal(t, []string{"1: http.port must be " + wholeNumber + `, got "` + number + `"`}, faultsOf(t, err))
		_, err = parseText(t, "", map[string]string{"PORT": number})
		require.Error(t, err, "from a variable: %s", number)
	}
	c, err := parseText(t, "http: {port: 0, max_body_bytes: 1_000_000}\nbatcher: {max_queue: 256}\n", nil)
	require.NoError(t, err)
	require.Equal(t, 1_000_000, c.HTTP.MaxBodyBytes)
	for _, address := range []string{"127.0.0.1:0777", "127.0.0.1:+80", "127.0.0.1:-1", "127.0.0.1:65536", "127.0.0.1:", "127.0.0.1"} {
		_, err = parseText(t, "rpc: {listen: '"+address+"'}\n", nil)
		require.Equal(t, []string{`1: rpc.listen must be host:port, got "` + address + `"`}, faultsOf(t, err))
	}
}

func TestAByteOrderMarkIsNoPartOfTheFirstKey(t *testing.T) {
	c, err := parseText(t, "\ufeffnode: {instance: marked}\n", nil)
	require.NoError(t, err)
	require.Equal(t, "marked", c.Node.Instance)
	for _, text := range []string{"\xff\xfen\x00o\x00", "\xfe\xff\x00n\x00o", "node: {instance: \"\xe9\"}\n"} {
		_, err = parseText(t, text, nil)
		require.Equal(t, []string{"the file must be UTF-8, got other bytes"}, faultsOf(t, err))
	}
}

func TestABoundThatAnotherKeySetsNamesIt(t *testing.T) {
	for text, want := range map[string][]string{
		"scheduler: {renew_ms: 3000}":           {"scheduler.renew_ms must be 100 to half of lease_ms, which is 5000, got 3000"},
		"scheduler: {lease_ms: 0}":              {"scheduler.lease_ms must be 500 to 60000, got 0"},
		"scheduler: {lease_ms: 0, renew_ms: 0}": {"scheduler.lease_ms must be 500 to 60000, got 0", "scheduler.renew_ms must be 100 to half of lease_ms, which is 0, got 0"},
		"dispatch: {breaker_max_open_ms: 100}":  {"dispatch.breaker_max_open_ms must be breaker_open_ms, which is 30000, to 86400000, got 100"},
		"dispatch: {breaker_open_ms: 0}":        {"dispatch.breaker_open_ms must be 1 to 86400000, got 0"},
		"dispatch: {breaker_open_ms: 600000}":   {"dispatch.breaker_max_open_ms must be breaker_open_ms, which is 600000, to 86400000, got 300000"},
		"dispatch: {breaker_open_ms: 90000000}": {"dispatch.breaker_open_ms must be 1 to 86400000, got 90000000"},
		"dispatch: {retry: {max_ms: 50}}":       {"dispatch.retry.max_ms must be base_ms, which is 100, to 86400000, got 50"},
		"batcher: {max_queue: 10}":              {"batcher.max_queue must be max_batch, which is 256, to 1000000, got 10"},
		"batcher: {max_queue_bytes: 10}":        {"batcher.max_queue_bytes must be http.max_body_bytes, which is 8000000, to 68719476736, got 10"},
		"dispatch: {breaker_open_ms: 90000000, breaker_failures: -1, batch: 0}": {
			"dispatch.batch must be 1 to 4096, got 0", "dispatch.breaker_failures must be 0 to 1000000, got -1",
			"dispatch.breaker_open_ms must be 1 to 86400000, got 90000000",
		},
	} {
		_, err := parseText(t, text, nil)
		var got []string
		for _, line := range faultsOf(t, err) {
			got = append(got, strings.TrimPrefix(line, "1: "))
		}
		require.ElementsMatch(t, want, got, text)
	}
}

func TestEveryKeyOfDispatchHasBoundsAndIsNamedAtOnce(t *testing.T) {
	_, err := parseText(t, `dispatch:
  batch: 5000
  concurrency: 0
  max_inflight: 0
  max_inflight_bytes: 0
  attempt_timeout_ms: 99
  sink_concurrency: 0
  breaker_failures: -1
  breaker_open_ms: 0
  breaker_max_open_ms: 86400001
  max_retry_after_ms: 999
  retry: {base_ms: 0, max_ms: 86400001, max_attempts: 0, max_elapsed_ms: 999}
  tenants:
    default: {max_inflight: 0}
    acme: {max_inflight_bytes: 0, concurrency: 0}
    "not a tenant": {concurrency: 1}
`, nil)
	require.Equal(t, []string{
		"2: dispatch.batch must be 1 to 4096, got 5000",
		"3: dispatch.concurrency must be 1 to 1000000, got 0",
		"4: dispatch.max_inflight must be 1 to 1000000, got 0",
		"5: dispatch.max_inflight_bytes must be 1 to 68719476736, got 0",
		"6: dispatch.attempt_timeout_ms must be 100 to 3600000, got 99",
		"7: dispatch.sink_concurrency must be 1 to 1000000, got 0",
		"8: dispatch.breaker_failures must be 0 to 1000000, got -1",
		"9: dispatch.breaker_open_ms must be 1 to 86400000, got 0",
		"10: dispatch.breaker_max_open_ms must be 1 to 86400000, got 86400001",
		"11: dispatch.max_retry_after_ms must be 1000 to 86400000, got 999",
		"12: dispatch.retry.base_ms must be 1 to 86400000, got 0",
		"12: dispatch.retry.max_ms must be 1 to 86400000, got 86400001",
		"12: dispatch.retry.max_attempts must be 1 to 1000000, got 0",
		"12: dispatch.retry.max_elapsed_ms must be 1000 to 2592000000, got 999",
		"14: dispatch.tenants.default.max_inflight must be 1 to 1000000, got 0",
		"15: dispatch.tenants.acme.max_inflight_bytes must be 1 to 68719476736, got 0",
		"15: dispatch.tenants.acme.concurrency must be 1 to 1000000, got 0",
		`16: dispatch.tenants.not a tenant must be a tenant's id or "default", got "not a tenant"`,
	}, faultsOf(t, err))
}

func TestTwoListenersOfAProcessNeedTwoPorts(t *testing.T) {
	for text, want := range map[string]string{
		"http: {port: 4002}":                                   "admin.port must be another port than http.port at the same address, got 4002",
		"http: {port: 4002, ip: 127.0.0.1}":                    "admin.port must be another port than http.port at the same address, got 4002",
		"http: {port: 4002, ip: 0.0.0.0}":                      "admin.port must be another port than http.port at the same address, got 4002",
		"http: {port: 4011}\nrpc: {listen: 'localhost:4011'}":  "rpc.listen must be another port than http.port at the same address, got 4011",
		"admin: {port: 4011}\nrpc: {listen: 'LOCALHOST:4011'}": "rpc.listen must be another port than admin.port at the same address, got 4011",
		"http: {port: 4002, ip: 127.0.0.2}":                    "",
		"http: {port: 4002, ip: '::1'}":                        "",
		"http: {port: 4002}\nadmin: {enabled: false}":          "",
		"http: {port: 0}\nadmin: {port: 0}":                    "",
		"http: {port: 4002, ip: 0.0.0.0}\nadmin: {ip: '::1'}":  "",
	} {
		_, err := parseText(t, text, nil)
		if want == "" {
			require.NoError(t, err, text)
			continue
		}
		require.Len(t, faultsOf(t, err), 1)
		require.Contains(t, faultsOf(t, err)[0], want, text)
	}
	tikv := "store: {type: tikv, pd: ['a:1']}\npeers: {scheduler: ['a:1']}\n"
	for role, text := range map[Role]string{
		RoleScheduler: "scheduler: {health_listen: '127.0.0.1:4011'}\n",
		RoleIngest:    "http: {port: 4010}\n",
	} {
		_, err := Parse("f", []byte(tikv+text), role, variables(nil))
		require.ErrorContains(t, err, "another port than", role)
		_, err = Parse("f", []byte(tikv+text), RoleGateway, variables(nil))
		require.NoError(t, err, "another process's listeners")
	}
}

func TestNamesOfTheAdminAPIAreHosts(t *testing.T) {
	c, err := parseText(t, "admin: {hosts: [admin.example, box]}\n", nil)
	require.NoError(t, err)
	require.Equal(t, []string{"admin.example", "box"}, c.Admin.Hosts)
	_, err = parseText(t, "admin: {hosts: ['a:1', '', 'http://a', '*']}\n", nil)
	require.Len(t, faultsOf(t, err), 4)
}

func TestChangesArePartedByWhatCanFollowThem(t *testing.T) {
	now := Default()
	next, err := parseText(t, `
http: {port: 4100}
dispatch: {concurrency: 5, batch: 9, attempt_timeout_ms: 1000, breaker_failures: 2, retry: {jitter: false}, tenants: {acme: {concurrency: 1}}}
sources: {a: {verify: {type: none}, sinks: [{type: log}]}}
`, nil)
	require.NoError(t, err)
	follow, restart := now.Changes(next)
	require.Equal(t, []string{"dispatch.concurrency", "dispatch.breaker_failures", "dispatch.retry.jitter", "dispatch.tenants"}, follow)
	require.Equal(t, []string{"http.port", "dispatch.batch", "dispatch.attempt_timeout_ms", "sources"}, restart)
	after := now.Following(next)
	follow, restart = after.Changes(next)
	require.Empty(t, follow)
	require.Equal(t, []string{"http.port", "dispatch.batch", "dispatch.attempt_timeout_ms", "sources"}, restart)
	require.Equal(t, Default(), now)
	require.NoError(t, after.Validate())
}
