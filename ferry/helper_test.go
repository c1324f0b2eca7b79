package ferry_test

import (
	"context"
	"errors"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ankusa.dev/ferry"
)

// parcel is an input whose keys stand in it.
type parcel struct {
	id               int
	weight           int64
	lane, group, bin string
}

func byFields(c ferry.Config[parcel]) ferry.Config[parcel] {
	c.Weight = func(p parcel) int64 { return p.weight }
	c.Lane = func(p parcel) (string, bool) { return p.lane, p.lane != "" }
	c.Group = func(p parcel) string { return p.group }
	c.Bin = func(p parcel) string { return p.bin }
	return c
}

func small(slots int) ferry.Config[parcel] {
	c := ferry.Default[parcel]()
	c.MaxInFlight = slots
	return c
}

// pier records batches. While gate is not nil, each batch waits to receive from
// it, or for its context to end.
type pier struct {
	gate    chan struct{}
	mu      sync.Mutex
	batches [][]parcel
	started []time.Time
}

func (p *pier) run(ctx context.Context, batch []parcel) ([]ferry.Result[int], error) {
	p.mu.Lock()
	p.batches = append(p.batches, append([]parcel(nil), batch...))
	p.started = append(p.started, time.Now())
	p.mu.Unlock()
	if p.gate != nil {
		select {
		case <-p.gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return ids(batch), nil
}

func ids(batch []parcel) []ferry.Result[int] {
	results := make([]ferry.Result[int], len(batch))
	for i, in := range batch {
		results[i].Value = in.id
	}
	return results
}

// seen returns the ids of the batches so far.
func (p *pier) seen() [][]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all [][]int
	for _, batch := range p.batches {
		var of []int
		for _, in := range batch {
			of = append(of, in.id)
		}
		all = append(all, of)
	}
	return all
}

// answers collects what callbacks are told, by id.
type answers struct {
	mu    sync.Mutex
	order []int
	errs  map[int]error
	times map[int]int
}

func newAnswers() *answers { return &answers{errs: map[int]error{}, times: map[int]int{}} }

func (a *answers) of(id int) func(int, error) {
	return func(got int, err error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if err == nil && got != id {
			err = errors.New("the answer of another input")
		}
		a.order = append(a.order, id)
		a.errs[id] = err
		a.times[id]++
	}
}

func mustNew[In, Out any](t testing.TB, c ferry.Config[In], run ferry.Run[In, Out]) *ferry.Batcher[In, Out] {
	t.Helper()
	b, err := ferry.New(c, run)
	noError(t, err)
	return b
}

func mustClose[In, Out any](t testing.TB, b *ferry.Batcher[In, Out]) {
	t.Helper()
	noError(t, b.Close(context.Background()))
}

func submit(t testing.TB, b *ferry.Batcher[parcel, int], a *answers, parcels ...parcel) {
	t.Helper()
	for _, p := range parcels {
		noError(t, b.Submit(p, a.of(p.id)))
	}
}

// pause lets d pass in a bubble, and everything that it sets off.
func pause(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("unexpected error: %v", err)
	}
}

func equal[T any](t testing.TB, what string, want, got T) {
	t.Helper()
	if !reflect.DeepEqual(want, got) {
		t.Fatalf("%s: want %v, got %v", what, want, got)
	}
}

func isError(t testing.TB, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("want an error that matches %q, got %v", target, err)
	}
}

// noLeak fails the test if goroutines of this module live on after it.
func noLeak(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		t.Helper()
		for range 1000 {
			if alive() == "" {
				return
			}
			runtime.Gosched()
		}
		t.Errorf("goroutines left behind:\n%s", alive())
	})
}

func alive() string {
	buf := make([]byte, 1<<20)
	var left []string
	for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n")[1:] {
		if strings.Contains(g, "ankusa.dev/ferry.") {
			left = append(left, g)
		}
	}
	return strings.Join(left, "\n\n")
}
