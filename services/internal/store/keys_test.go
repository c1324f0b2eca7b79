package store

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"sort"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
)

var update = flag.Bool("update", false, "write the golden files")

// TestTheKeyLayoutIsGolden shows one key of each family, in the order of the store. A change here is a migration.
func TestTheKeyLayoutIsGolden(t *testing.T) {
	sink := hook.SinkKey{Tenant: "acme", SourceID: "acme.stripe", Index: 1, Type: "http"}
	id := hook.ID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	at := hook.FromMillis(1_700_000_000_000) + 7
	row := hook.Row{Partition: 3, Key: sink, Hook: id, Due: at, Version: at}
	member := row
	member.Ordered, member.Lane, member.Place = true, "cus\x00tomer", hook.Place{Start: at, Index: 9}
	waiting := member
	waiting.Due = at.Add(time.Second)
	keys := map[string][]byte{
		"cluster": clusterRecordKey(), "leader": leaderKey(), "source": sourceKey("acme", "stripe"),
		"guard": guardKey("acme", "stripe"), "writer": writerKey(id[:]), "runner": runnerKey(id[:]), "probe": probeKey(),
		"fence": fenceKey(Slot{3, 2}), "epoch": epochKey(3), "counter of the leader": counterKey(3, sink, nil),
		"counter of a writer": counterKey(3, sink, id[:]), "due": rowKey(&row), "lane": rowKey(&member),
		"wake-up of a member": dueKey(&waiting),
		"dead":                deadKey(3, "acme", at, row.Ref()), "dead by time": deadTimeKey(3, "acme", at, row.Ref()),
		"hook": hookKey(3, "acme", id), "body": bodyKey(3, "acme", id, 1), "obligation": obligationKey(3, "acme", id),
		"dedupe": dedupeKey(3, "acme", "acme.stripe", "evt_1"),
		"expiry": expiryKey(3, bucketOf(at), dedupeKey(3, "acme", "acme.stripe", "evt_1")),
		"event":  eventKey(3, at, 2), "history": historyKey(3, "acme", row.Ref()),
	}
	names := make([]string, 0, len(keys))
	for name := range keys {
		names = append(names, name)
	}
	sort.Slice(names, func(i, j int) bool { return bytes.Compare(keys[names[i]], keys[names[j]]) < 0 })
	var dump bytes.Buffer
	for _, name := range names {
		fmt.Fprintf(&dump, "%-22s %x\n", name, keys[name])
	}
	const golden = "testdata/keys.golden"
	if *update {
		require.NoError(t, os.WriteFile(golden, dump.Bytes(), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), dump.String())
}

func TestL19_TheTenantIsInEveryKey(t *testing.T) {
	one := hook.SinkKey{Tenant: "a", SourceID: "bc", Type: "http"}
	two := hook.SinkKey{Tenant: "ab", SourceID: "c", Type: "http"}
	require.NotEqual(t, counterKey(1, one, nil), counterKey(1, two, nil))
	require.NotEqual(t, dedupeKey(1, "a", "b", "cd"), dedupeKey(1, "a", "bc", "d"))
	require.NotEqual(t, dueFamily(1, one), dueFamily(1, two))
}

func FuzzTextsKeepTheirOrderAndComeBack(f *testing.F) {
	f.Add("", "a")
	f.Add("a\x00", "a\x00\x01")
	f.Add("a\x00\xff", "a")
	f.Fuzz(func(t *testing.T, a, b string) {
		ka, kb := key(nil).text(a).u32(7), key(nil).text(b).u32(7)
		require.Equal(t, bytes.Compare([]byte(a), []byte(b)), bytes.Compare(ka, kb))
		r := readKey(ka, 0)
		require.Equal(t, a, r.text())
		require.EqualValues(t, 7, r.u32())
		require.NoError(t, r.end())
	})
}

func FuzzKeysOfStrangersAreRefusedNotBelieved(f *testing.F) {
	f.Add([]byte{0, 1, 2})
	f.Fuzz(func(_ *testing.T, b []byte) {
		r := readKey(b, 0)
		r.sinkKey()
		r.ts()
		r.id()
		_ = r.end()
	})
}
