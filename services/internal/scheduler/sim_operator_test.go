package scheduler

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "ankusa.dev/proto/gen/ankusa/admin/v1"
	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/scheduler/core"
)

const (
	sources = 3
	horizon = 3 * time.Minute
)

// simOperator changes limits and sources, condemns and deletes sources, by calls to whichever scheduler, and takes the
// leader's store away in the middle of some. Its time is that of the synctest bubble.
type simOperator struct {
	*faulty
	rnd *rand.Rand
}

// createSources goes past the faults: they are not what is tried here.
func (f *faulty) createSources() {
	o := simOperator{f, f.random(29)}
	for i := range sources {
		src := o.draw(fmt.Sprintf("s%d", i), i+1)
		_, err := f.origin.CreateSource(f.t.Context(), &adminv1.CreateSourceRequest{Tenant: hook.DefaultTenant, Source: src})
		require.NoError(f.t, err)
	}
}

// draw is a source with some ordered sinks and some that batch.
func (o *simOperator) draw(name string, sinks int) *adminv1.Source {
	elapsed := uint64(horizon.Milliseconds())
	src := &adminv1.Source{
		Name: name, Verify: &adminv1.Verify{Type: "none"}, Retry: &adminv1.Retry{MaxElapsedMs: &elapsed},
	}
	for range sinks {
		sink := &adminv1.Sink{Type: "log"}
		if o.rnd.IntN(3) == 0 {
			sink = &adminv1.Sink{Type: "http", Url: "http://127.0.0.1/", AllowUnsigned: true}
		}
		if o.rnd.IntN(2) == 0 {
			sink.Ordered, sink.OrderingKey = true, &adminv1.OrderingKey{Header: "x-lane"}
		}
		src.Sinks = append(src.Sinks, sink)
	}
	return src
}

// operate is what the operator does while writers write.
func (f *faulty) operate(ctx context.Context, who uint64) {
	o := &simOperator{f, f.random(who)}
	for range o.rnd.IntN(6) {
		time.Sleep(between(o.rnd, 0, 4*time.Second))
		act := o.draws()
		name := fmt.Sprintf("s%d", o.rnd.IntN(sources))
		cut := o.rnd.IntN(4) == 0
		after, length := between(o.rnd, 0, 2*time.Second), between(o.rnd, 5*time.Second, 15*time.Second)
		if cut {
			f.work.Go(func() {
				time.Sleep(after)
				f.cutOff(f.leader(), length)
			})
		}
		act(ctx, name)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.acting = false
}

func (o *simOperator) draws() func(context.Context, string) {
	acts := []func(context.Context, string){o.reconfigure, o.breakDown, o.update, o.condemn, o.condemn, o.delete, o.delete}
	return acts[o.rnd.IntN(len(acts))]
}

// leader is the scheduler that leads, or one that does not where none does.
func (f *faulty) leader() *faultyNode {
	for _, n := range f.nodes {
		if n.term.Load() != nil {
			return n
		}
	}
	return f.nodes[0]
}

// reconfigure puts other limits in force at every scheduler.
func (o *simOperator) reconfigure(context.Context, string) {
	cfg := o.cfg.Core
	cfg.Batch = 1 + o.rnd.IntN(128)
	cfg.MaxInflight, cfg.SinkConcurrency = 10+o.rnd.IntN(300), o.rnd.IntN(9)
	cfg.Default.MaxInflight, cfg.Default.Concurrency = 3+o.rnd.IntN(80), o.rnd.IntN(8)
	cfg.Breakers.Failures = o.rnd.IntN(6)
	cfg.Breakers.Open, cfg.Breakers.MaxOpen = 5*time.Second, time.Minute
	o.mu.Lock()
	o.limits.most(&cfg)
	o.mu.Unlock()
	for _, n := range o.nodes {
		if t := n.term.Load(); t != nil {
			t.post(func(c *core.Core, now hook.Timestamp) { c.Configure(now, cfg) })
		}
	}
}

// breakDown has the sinks of a source fail for a while, for one tenant.
func (o *simOperator) breakDown(_ context.Context, name string) {
	until := time.Now().Add(between(o.rnd, time.Second, time.Minute))
	o.mu.Lock()
	defer o.mu.Unlock()
	tenant := fmt.Sprintf("t%d", o.rnd.IntN(3))
	for _, d := range o.model.deliveries {
		if d.key.Tenant == tenant && d.key.SourceID == name {
			o.model.downs[d.key] = until
		}
	}
}

func (f *faulty) isDown(key hook.SinkKey) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Now().Before(f.model.downs[key])
}

// update gives a source other sinks, at the same places: what is pending stays bound as it was.
func (o *simOperator) update(ctx context.Context, name string) {
	old, err := o.store.Source(ctx, hook.DefaultTenant, name)
	if err != nil {
		return // deleted
	}
	req := &adminv1.UpdateSourceRequest{Tenant: hook.DefaultTenant, Name: name, Source: o.draw(name, len(old.Sinks))}
	_ = o.somewhere(ctx, func(ctx context.Context, n *faultyNode) error {
		_, err := adminv1.NewSourceServiceClient(n.conn).UpdateSource(ctx, req)
		return err
	})
}

// callTime is what the operator gives a call.
const callTime = 30 * time.Second

// somewhere calls one scheduler after the other until one has an answer.
func (o *simOperator) somewhere(ctx context.Context, call func(context.Context, *faultyNode) error) (err error) {
	first := o.rnd.IntN(2)
	for i := range 6 {
		ctx, cancel := context.WithTimeout(ctx, callTime)
		err = call(ctx, o.nodes[(first+i)%2])
		cancel()
		if c := status.Code(err); c != codes.Unavailable && c != codes.DeadlineExceeded {
			return err
		}
		time.Sleep(500 * time.Millisecond)
	}
	return err
}

// begin notes an act of which nobody can tell yet what it does.
func (o *simOperator) begin(name string, deletes uint64) *act {
	o.mu.Lock()
	defer o.mu.Unlock()
	a := &act{source: name, begun: o.step(), done: ^uint64(0), deletes: deletes}
	o.model.acts = append(o.model.acts, a)
	return a
}

func (o *simOperator) end(a *act) {
	o.mu.Lock()
	defer o.mu.Unlock()
	a.done = o.step()
}

// condemn ends what a source has pending.
func (o *simOperator) condemn(ctx context.Context, name string) {
	err := o.somewhere(ctx, func(ctx context.Context, n *faultyNode) error {
		a := o.begin(name, 0)
		defer o.end(a)
		req := &adminv1.DeadLetterSourceRequest{SourceId: name}
		resp, err := adminv1.NewPipelineServiceClient(n.conn).DeadLetterSource(ctx, req)
		a.rows, a.sure = resp.GetDeadLettered(), err == nil
		return err
	})
	if c := status.Code(err); c != codes.OK && c != codes.Unavailable && c != codes.DeadlineExceeded {
		require.NoError(o.t, err, "seed %d", o.seed)
	}
}

// delete deletes a source with what it has pending, and creates another of its name, at once or a while later.
func (o *simOperator) delete(ctx context.Context, name string) {
	old, err := o.store.Source(ctx, hook.DefaultTenant, name)
	if err != nil {
		return // deleted before
	}
	req := &adminv1.DeleteSourceRequest{Tenant: hook.DefaultTenant, Name: name, Deliveries: "dead_letter"}
	_ = o.somewhere(ctx, func(ctx context.Context, n *faultyNode) error {
		a := o.begin(name, old.Incarnation)
		defer o.end(a)
		_, err := adminv1.NewSourceServiceClient(n.conn).DeleteSource(ctx, req)
		return err
	})
	switch o.rnd.IntN(3) {
	case 0:
		return
	case 1:
		time.Sleep(between(o.rnd, 0, 3*time.Second))
	}
	o.create(ctx, o.draw(name, 1+o.rnd.IntN(3)))
}

func (o *simOperator) create(ctx context.Context, src *adminv1.Source) {
	_ = o.somewhere(ctx, func(ctx context.Context, n *faultyNode) error {
		_, err := adminv1.NewSourceServiceClient(n.conn).CreateSource(ctx, &adminv1.CreateSourceRequest{Tenant: hook.DefaultTenant, Source: src})
		return err
	})
}
