// Package kvtest is the conformance suite of the key-value port. A driver passes it whole, and is neither laxer nor
// stricter than it says: what snapshot isolation lets through is asserted to commit.
package kvtest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"ankusa.dev/services/internal/kv"
)

// patience ends a test whose driver hangs.
const patience = time.Minute

// Factory opens the driver under test. Every function returns an empty store unless it says otherwise, registers with
// t what has to be cleaned up beside the store, and leaves closing the store to the suite.
//
// A nil hook needs an entry in Exceptions under the hook's name, or the suite fails.
type Factory struct {
	Open func(t testing.TB) kv.Store

	// MaxEntry is the size of a value that the driver refuses with kv.ErrTooLarge.
	MaxEntry int
	// Doubts are the ways in which the driver's commit can become undetermined, by name.
	Doubts map[string]Doubt
	// Outage opens a store whose backend can be taken away and given back.
	Outage func(t testing.TB) (s kv.Store, begin, end func())
	// Stalls are the places, by name, at which the driver's commit can be held after the closure has returned.
	Stalls map[string]func(t testing.TB) Stall
	// OpenAt opens what is in the directory: nothing, or what an earlier store left there.
	OpenAt func(t testing.TB, dir string) kv.Store
	// Disk opens a store on a disk of the test's own, each sync of which takes at least the latency.
	Disk func(t testing.TB, latency time.Duration) Disk

	// Exceptions name the parts that this driver does not take, as "Hook", or "Test" for a single one, each with the
	// reason. A name that is not known fails the suite.
	Exceptions map[string]string
	// Leaks excuse goroutines that calls of the driver may leave until Close.
	Leaks []goleak.Option
}

// Doubt is one way to an undetermined commit.
type Doubt struct {
	// Landed says what truly becomes of the commit.
	Landed bool
	// Open returns a store, and a function that arms the fault. The next Update, under the context returned, answers
	// kv.ErrUndetermined. After end the store answers reads again.
	Open func(t testing.TB) (s kv.Store, arm func(context.Context) (ctx context.Context, end func()))
}

// Stall is a store whose commits can be held.
type Stall struct {
	Store kv.Store
	// Hold makes the next commit stop, closing reached, until release is called.
	Hold func() (reached <-chan struct{}, release func())
}

// Disk is a store whose disk is under the test's control.
type Disk struct {
	Store kv.Store
	// Clone opens a further store on what a power cut now would leave: nothing that was not synced.
	Clone func() kv.Store
	// Syncs counts the syncs done for commits.
	Syncs func() int64
	// Hold makes every sync wait, closing waiting at the first one, until release is called.
	Hold func() (waiting <-chan struct{}, release func())
}

type part struct {
	name string
	hook string // of Factory, empty for none
	run  func(*testing.T, Factory)
}

func parts() []part {
	return []part{
		{"Get", "", testGet},
		{"BatchGet", "", testBatchGet},
		{"OwnWritesAreSeen", "", testOwnWrites},
		{"TheLastWriteOfAKeyCounts", "", testRewrites},
		{"SlicesBelongToTheCaller", "", testOwnership},
		{"EmptyValueIsRefused", "", testEmptyValue},
		{"ClosureErrorWritesNothing", "", testClosureError},
		{"SnapshotIsRepeatable", "", testSnapshot},
		{"ReadOnlyUpdate", "", testReadOnlyUpdate},
		{"Scan", "", testScan},
		{"ScanRefusesLimitBelowOne", "", testScanLimit},
		{"ScanMergesOwnWrites", "", testScanMerge},
		{"ScanLong", "", testScanLong},
		{"ScanModel", "", testScanModel},
		{"Conflict", "", testConflict},
		{"ConflictNamesAKey", "", testConflictKey},
		{"NoConflict", "", testNoConflict},
		{"FailedTransactionConflictsWithNobody", "", testFailedIsInvisible},
		{"WriteSkewCommits", "", testWriteSkew},
		{"PhantomCommits", "", testPhantom},
		{"LockClosesWriteSkew", "", testLockSkew},
		{"LockClosesPhantom", "", testLockPhantom},
		{"LockKeepsTheValue", "", testLockValue},
		{"NoLostUpdate", "", testCounter},
		{"History", "", testHistory},
		{"BoundHolds", "", testBoundHolds},
		{"BoundPassedInClosure", "", testBoundPassed},
		{"BoundMakesReadsFinal", "", testFinality},
		{"BoundPassedInCommit", "Stalls", testStalls},
		{"LargeBatch", "", testLargeBatch},
		{"LargeValues", "", testLargeValues},
		{"TooLarge", "MaxEntry", testTooLarge},
		{"DropRange", "", testDropRange},
		{"NowIncreases", "", testNow},
		{"ContextCancelledBefore", "", testCancelledBefore},
		{"ContextCancelledInside", "", testCancelledInside},
		{"ContextCancelledAnywhere", "", testCancelledAnywhere},
		{"CallsAfterClose", "", testClosed},
		{"CloseUnderOpenCalls", "", testCloseUnder},
		{"Undetermined", "Doubts", testDoubts},
		{"Unavailable", "Outage", testOutage},
		{"ReopenAfterKill", "OpenAt", testKill},
		{"ReopenAfterClose", "OpenAt", testReopen},
		{"PowerCutKeepsCommits", "Disk", testPowerCut},
		{"PowerCutKeepsWhatWasSeen", "Disk", testSeenSurvives},
		{"PowerCutKeepsTheClock", "Disk", testClockSurvives},
		{"GroupCommit", "Disk", testGroupCommit},
	}
}

// Run runs the suite as subtests of t.
func Run(t *testing.T, f Factory) {
	for name, reason := range f.Exceptions {
		require.True(t, known(name), "exception for %s, which the suite does not have", name)
		require.NotEmpty(t, reason, "exception for %s without a reason", name)
	}
	for _, p := range parts() {
		t.Run(p.name, func(t *testing.T) {
			if reason := f.exception(p); reason != "" {
				t.Skipf("exception of this driver: %s", reason)
			}
			require.True(t, f.offers(p.hook), "the driver neither offers %s nor names an exception", p.hook)
			p.run(t, f)
		})
	}
}

func known(name string) bool {
	for _, p := range parts() {
		if name == p.name || name == p.hook {
			return true
		}
	}
	return false
}

func (f Factory) exception(p part) string {
	if reason := f.Exceptions[p.name]; reason != "" || p.hook == "" {
		return reason
	}
	return f.Exceptions[p.hook]
}

func (f Factory) offers(hook string) bool {
	switch hook {
	case "MaxEntry":
		return f.MaxEntry > 0
	case "Doubts":
		return len(f.Doubts) > 0
	case "Outage":
		return f.Outage != nil
	case "Stalls":
		return len(f.Stalls) > 0
	case "OpenAt":
		return f.OpenAt != nil
	case "Disk":
		return f.Disk != nil
	}
	return true
}

// open returns the driver's store, closed with the test, and a context that ends a hanging test.
func open(t *testing.T, f Factory) (context.Context, kv.Store) {
	s := f.Open(t)
	return bounded(t), closing(t, s)
}

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// closing closes s with the test. A test that closes it itself loses nothing: the second result is of no interest.
func closing(t *testing.T, s kv.Store) kv.Store {
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func b(s string) []byte { return []byte(s) }

func write(ctx context.Context, s kv.Store, o kv.UpdateOptions, pairs ...string) (kv.Timestamp, error) {
	return s.Update(ctx, o, func(tx kv.Txn) error { return putAll(tx, pairs) })
}

func putAll(tx kv.Txn, pairs []string) error {
	for i := 0; i < len(pairs); i += 2 {
		if err := tx.Put(b(pairs[i]), b(pairs[i+1])); err != nil {
			return err
		}
	}
	return nil
}

// put commits keys and values given by turns.
func put(ctx context.Context, t testing.TB, s kv.Store, pairs ...string) kv.Timestamp {
	t.Helper()
	ts, err := write(ctx, s, kv.UpdateOptions{}, pairs...)
	require.NoError(t, err)
	return ts
}

// dump is the whole store.
func dump(ctx context.Context, t testing.TB, s kv.Store) map[string]string {
	t.Helper()
	var all []kv.Pair
	require.NoError(t, s.View(ctx, func(r kv.Reader) (err error) {
		all, err = r.Scan(ctx, kv.Scan{Limit: 1 << 20})
		return err
	}))
	return asMap(all)
}

func asMap(pairs []kv.Pair) map[string]string {
	m := make(map[string]string, len(pairs))
	for _, p := range pairs {
		m[string(p.Key)] = string(p.Value)
	}
	return m
}

// passClock returns when the store's clock stands above ts.
func passClock(ctx context.Context, s kv.Store, ts kv.Timestamp) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		now, err := s.Now(ctx)
		if err != nil || now > ts {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
