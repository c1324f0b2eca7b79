package wire

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	dispatchv1 "ankusa.dev/proto/gen/ankusa/dispatch/v1"
	"ankusa.dev/services/internal/hook"
)

var httpKey = hook.SinkKey{Tenant: "acme", SourceID: "acme.stripe", Index: 3, Type: "http"}

func unordered() hook.Row {
	return hook.Row{Partition: 7, Key: httpKey, Hook: hook.ID{1, 2, 3}, Due: 1 << 40, Version: 1<<40 + 5}
}

func member() hook.Row {
	r := unordered()
	r.Ordered, r.Lane, r.Place = true, "customer-1", hook.Place{Start: 99, Index: 4}
	return r
}

func attempts() []Attempt {
	plain := Attempt{
		Lease: hook.Lease{Epoch: 8, ID: 9}, Row: unordered(), Number: 2, Timeout: 30 * time.Second, Left: 35*time.Second + 5,
		SourceRevision: 77, Incarnation: 5, Size: 512,
	}
	ordered := plain
	ordered.Row, ordered.ReplayID, ordered.ClaimRef = member(), "01890000-0000-7000-8000-000000000000", "urn:x"
	return []Attempt{plain, ordered}
}

func reports() []hook.Report {
	ended := hook.Report{Lease: hook.Lease{Epoch: 1, ID: 2}, Row: member(), Attempt: 1, Outcome: hook.Outcome{
		Class: hook.Throttled, Reason: "http: status 429", RetryAfter: 90 * time.Second, Status: 429,
		Duration: 1500 * time.Microsecond, Response: []byte("slow down"),
	}}
	var all []hook.Report
	for _, c := range classes {
		ended.Outcome.Class = c.hook
		all = append(all, ended)
	}
	return append(all, hook.Report{Lease: hook.Lease{Epoch: 0, ID: 1}, Row: unordered(), Attempt: 1, Outcome: hook.Outcome{Class: hook.Gone}})
}

func hello() Hello {
	return Hello{
		Runner: hook.RunID{15: 1}, Name: "host/1", SinkTypes: []string{"http", "log"}, Credit: hook.Credit{Slots: 256, Rows: 10, Bytes: 1 << 20},
		Running: []hook.Running{{
			Lease: hook.Lease{Epoch: 1, ID: 2}, Row: unordered(), Attempt: 3, Left: time.Second,
		}},
		Unacknowledged: reports(), HighestEpoch: 12,
	}
}

func committed() Committed {
	return Committed{
		Sequence: 4,
		Groups: []hook.Group{
			{Partition: 1, Key: httpKey, Start: 5, Hooks: []hook.ID{{1}, {2}}},
			{Partition: 1, Key: httpKey, Start: 5, Hooks: []hook.ID{{1}, {2}}, Ordered: true,
				Lanes: []string{"", "b"}, Members: []uint32{0, 7}},
		},
		Backlogs: []Backlog{{Partition: 252, Key: httpKey, From: 9, Ordered: true}},
	}
}

// overTheWire encodes and decodes a message as a stream does.
func overTheWire[M proto.Message](t *testing.T, m, empty M) M {
	t.Helper()
	b, err := proto.Marshal(m)
	require.NoError(t, err)
	require.NoError(t, proto.Unmarshal(b, empty))
	return empty
}

func TestMessagesSurviveTheWire(t *testing.T) {
	gotAttempts, err := ReadAttempts(overTheWire(t, AttemptsProto(attempts()), new(dispatchv1.Attempts)))
	require.NoError(t, err)
	require.Equal(t, attempts(), gotAttempts)

	p := &dispatchv1.Outcomes{Outcomes: ReportsProto(reports())}
	gotReports, err := ReadReports(overTheWire(t, p, new(dispatchv1.Outcomes)).Outcomes)
	require.NoError(t, err)
	want := reports()
	require.Empty(t, gotReports[len(want)-1].Outcome.Response)
	gotReports[len(want)-1].Outcome.Response = nil
	require.Equal(t, want, gotReports)

	h := hello()
	gotHello, err := ReadHello(overTheWire(t, h.Proto(), new(dispatchv1.Hello)))
	require.NoError(t, err)
	gotHello.Unacknowledged[len(want)-1].Outcome.Response = nil
	require.Equal(t, h, gotHello)

	c := committed()
	gotCommitted, err := ReadCommitted(overTheWire(t, c.Proto(), new(dispatchv1.Committed)))
	require.NoError(t, err)
	require.Equal(t, c, gotCommitted)

	leases := []hook.Lease{{Epoch: 1, ID: 2}, {Epoch: 3, ID: 4}}
	settled := &dispatchv1.Settled{Leases: LeasesProto(leases)}
	require.Equal(t, leases, ReadLeases(overTheWire(t, settled, new(dispatchv1.Settled)).Leases))

	for _, writers := range [][]hook.RunID{{{9}}, {{9}, {8}, {}}} {
		got, err := ReadWriterHello(overTheWire(t, WriterHelloProto(writers), new(dispatchv1.WriterHello)))
		require.NoError(t, err)
		require.Equal(t, writers, got)
	}
}

func TestEveryReportableClassHasItsOwnNumber(t *testing.T) {
	require.Len(t, classes, len(dispatchv1.Class_name)-1)
	for _, c := range classes {
		got, known := readClass(classProto(c.hook))
		require.True(t, known)
		require.Equal(t, c.hook, got)
	}
	_, known := readClass(classProto(hook.Lost))
	require.False(t, known, "a loss is not for a runner to report")
}

func TestMalformedRowsAreRefused(t *testing.T) {
	for name, spoil := range map[string]func(*dispatchv1.Row){
		"no key":          func(r *dispatchv1.Row) { r.Key = nil },
		"partition":       func(r *dispatchv1.Row) { r.Partition = 253 },
		"partition wraps": func(r *dispatchv1.Row) { r.Partition = 256 },
		"short id":        func(r *dispatchv1.Row) { r.HookId = r.HookId[:15] },
		"long id":         func(r *dispatchv1.Row) { r.HookId = make([]byte, 17) },
		"long lane":       func(r *dispatchv1.Row) { r.Lane = make([]byte, 257) },
		"lane unordered":  func(r *dispatchv1.Row) { r.Ordered = false },
		"a wake-up":       func(r *dispatchv1.Row) { r.Version = 0 },
		"no place":        func(r *dispatchv1.Row) { r.MemberStart = 0 },
		"empty tenant":    func(r *dispatchv1.Row) { r.Key.Tenant = "" },
		"tenant slash":    func(r *dispatchv1.Row) { r.Key.Tenant = "a/b" },
		"long tenant":     func(r *dispatchv1.Row) { r.Key.Tenant = strings.Repeat("a", 65) },
		"two dots":        func(r *dispatchv1.Row) { r.Key.SourceId = "acme.b.c" },
		"no name":         func(r *dispatchv1.Row) { r.Key.SourceId = "acme." },
		"index":           func(r *dispatchv1.Row) { r.Key.Index = 64 },
		"index wraps":     func(r *dispatchv1.Row) { r.Key.Index = 1 << 16 },
		"no type":         func(r *dispatchv1.Row) { r.Key.Type = "" },
		"long type":       func(r *dispatchv1.Row) { r.Key.Type = strings.Repeat("a", 33) },
		"type case":       func(r *dispatchv1.Row) { r.Key.Type = "HTTP" },
	} {
		t.Run(name, func(t *testing.T) {
			r := member()
			p := RowProto(&r)
			spoil(p)
			_, err := ReadRow(p)
			require.ErrorIs(t, err, ErrMalformed)
		})
	}
}

func TestL19_ASourceOfAnotherTenantIsRefused(t *testing.T) {
	for sourceID, ok := range map[string]bool{"stripe": true, "acme.stripe": true, "globex.stripe": false} {
		_, err := ReadKey(KeyProto(hook.SinkKey{Tenant: "acme", SourceID: sourceID, Type: "http"}))
		require.Equal(t, ok, err == nil, sourceID)
	}
}

func TestMalformedAttemptsAreRefused(t *testing.T) {
	for name, spoil := range map[string]func(*dispatchv1.Attempt){
		"no row":             func(a *dispatchv1.Attempt) { a.Row = nil },
		"attempt zero":       func(a *dispatchv1.Attempt) { a.Attempt = 0 },
		"no timeout":         func(a *dispatchv1.Attempt) { a.Timeout = nil },
		"negative timeout":   func(a *dispatchv1.Attempt) { a.Timeout = durationpb.New(-1) },
		"negative nanos":     func(a *dispatchv1.Attempt) { a.Timeout.Nanos = -1 },
		"huge nanos":         func(a *dispatchv1.Attempt) { a.Timeout.Nanos = 1e9 },
		"huge lease":         func(a *dispatchv1.Attempt) { a.Lease.Seconds = 1 << 62 },
		"no lease":           func(a *dispatchv1.Attempt) { a.Lease = nil },
		"long replay id":     func(a *dispatchv1.Attempt) { a.ReplayId = strings.Repeat("a", 65) },
		"long claim ref":     func(a *dispatchv1.Attempt) { a.ClaimRef = strings.Repeat("a", 513) },
		"nothing but a name": func(a *dispatchv1.Attempt) { proto.Reset(a) },
	} {
		t.Run(name, func(t *testing.T) {
			p := AttemptsProto(attempts())
			spoil(p.Attempts[1])
			_, err := ReadAttempts(p)
			require.ErrorIs(t, err, ErrMalformed)
			require.ErrorContains(t, err, "attempts[1]")
		})
	}
}

func TestMalformedReportsAreRefused(t *testing.T) {
	for name, spoil := range map[string]func(*dispatchv1.Outcome){
		"no row":         func(o *dispatchv1.Outcome) { o.Row = nil },
		"no class":       func(o *dispatchv1.Outcome) { o.Class = 0 },
		"unknown class":  func(o *dispatchv1.Outcome) { o.Class = 11 },
		"negative class": func(o *dispatchv1.Outcome) { o.Class = -1 },
		"attempt zero":   func(o *dispatchv1.Outcome) { o.Attempt = 0 },
		"long reason":    func(o *dispatchv1.Outcome) { o.Reason = strings.Repeat("a", 513) },
		"long response":  func(o *dispatchv1.Outcome) { o.Response = make([]byte, 1025) },
		"status":         func(o *dispatchv1.Outcome) { o.Status = 1 << 16 },
		"endless pause":  func(o *dispatchv1.Outcome) { o.RetryAfter = &durationpb.Duration{Seconds: 1 << 62} },
		"negative pause": func(o *dispatchv1.Outcome) { o.RetryAfter = durationpb.New(-time.Second) },
		"duration":       func(o *dispatchv1.Outcome) { o.Duration = durationpb.New(-time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			list := ReportsProto(reports()[:1])
			spoil(list[0])
			_, err := ReadReports(list)
			require.ErrorIs(t, err, ErrMalformed)
		})
	}
}

func TestMalformedHellosAreRefused(t *testing.T) {
	for name, spoil := range map[string]func(*dispatchv1.Hello){
		"runner id":      func(h *dispatchv1.Hello) { h.RunnerId = nil },
		"long name":      func(h *dispatchv1.Hello) { h.Name = strings.Repeat("a", 256) },
		"name":           func(h *dispatchv1.Hello) { h.Name = "a\nb" },
		"no types":       func(h *dispatchv1.Hello) { h.SinkTypes = nil },
		"many types":     func(h *dispatchv1.Hello) { h.SinkTypes = make([]string, 33) },
		"bad type":       func(h *dispatchv1.Hello) { h.SinkTypes[0] = "a b" },
		"no credit":      func(h *dispatchv1.Hello) { h.Credit = nil },
		"slots":          func(h *dispatchv1.Hello) { h.Credit.Slots = 65537 },
		"batching rows":  func(h *dispatchv1.Hello) { h.Credit.BatchingRows = 1<<20 + 1 },
		"running":        func(h *dispatchv1.Hello) { h.Running[0].Row = nil },
		"running left":   func(h *dispatchv1.Hello) { h.Running[0].Left = durationpb.New(-1) },
		"running number": func(h *dispatchv1.Hello) { h.Running[0].Attempt = 0 },
		"many running":   func(h *dispatchv1.Hello) { h.Running = make([]*dispatchv1.RunningLease, MaxHeld+1) },
		"many outcomes":  func(h *dispatchv1.Hello) { h.Unacknowledged = make([]*dispatchv1.Outcome, MaxHeld+1) },
		"outcome":        func(h *dispatchv1.Hello) { h.Unacknowledged[0].Row = nil },
	} {
		t.Run(name, func(t *testing.T) {
			h := hello()
			p := h.Proto()
			spoil(p)
			_, err := ReadHello(p)
			require.ErrorIs(t, err, ErrMalformed)
		})
	}
}

func TestMalformedCommitsAreRefused(t *testing.T) {
	for name, spoil := range map[string]func(*dispatchv1.Committed){
		"sequence":      func(c *dispatchv1.Committed) { c.Sequence = 0 },
		"partition":     func(c *dispatchv1.Committed) { c.Groups[0].Partition = 253 },
		"key":           func(c *dispatchv1.Committed) { c.Groups[0].Key = nil },
		"no hooks":      func(c *dispatchv1.Committed) { c.Groups[0].HookIds = nil },
		"hook id":       func(c *dispatchv1.Committed) { c.Groups[0].HookIds[1] = nil },
		"lanes":         func(c *dispatchv1.Committed) { c.Groups[1].Lanes = c.Groups[1].Lanes[:1] },
		"no members":    func(c *dispatchv1.Committed) { c.Groups[1].MemberIndexes = nil },
		"no lanes":      func(c *dispatchv1.Committed) { c.Groups[1].Lanes = nil },
		"long lane":     func(c *dispatchv1.Committed) { c.Groups[1].Lanes[0] = make([]byte, 257) },
		"backlog":       func(c *dispatchv1.Committed) { c.Backlogs[0].Partition = 300 },
		"backlog's key": func(c *dispatchv1.Committed) { c.Backlogs[0].Key = nil },
	} {
		t.Run(name, func(t *testing.T) {
			c := committed()
			p := c.Proto()
			spoil(p)
			_, err := ReadCommitted(p)
			require.ErrorIs(t, err, ErrMalformed)
		})
	}
}

// I11: what one message may name is bounded before anything is made of it.
func TestI11_MessagesOverTheBoundsAreRefused(t *testing.T) {
	c := committed()
	c.Groups[0].Hooks = make([]hook.ID, MaxNamed-2)
	_, err := ReadCommitted(c.Proto())
	require.NoError(t, err)
	c.Groups[0].Hooks = make([]hook.ID, MaxNamed-1)
	_, err = ReadCommitted(c.Proto())
	require.ErrorIs(t, err, ErrMalformed, "with the two of the other group")

	c = committed()
	c.Groups = make([]hook.Group, MaxNamed+1)
	for i := range c.Groups {
		c.Groups[i] = hook.Group{Key: httpKey, Hooks: []hook.ID{{1}}}
	}
	_, err = ReadCommitted(c.Proto())
	require.ErrorIs(t, err, ErrMalformed)
	c.Groups, c.Backlogs = nil, make([]Backlog, MaxBacklogs+1)
	_, err = ReadCommitted(c.Proto())
	require.ErrorIs(t, err, ErrMalformed)

	reports := make([]hook.Report, MaxReports+1)
	for i := range reports {
		reports[i] = hook.Report{Row: hook.Row{Key: httpKey}, Attempt: 1, Outcome: hook.Outcome{Class: hook.Delivered}}
	}
	_, err = ReadOutcomes(&dispatchv1.Outcomes{Outcomes: ReportsProto(reports[1:])})
	require.NoError(t, err)
	_, err = ReadOutcomes(&dispatchv1.Outcomes{Outcomes: ReportsProto(reports)})
	require.ErrorIs(t, err, ErrMalformed)
}

func TestMalformedHellosOfWritersAreRefused(t *testing.T) {
	id := make([]byte, 16)
	crowd := make([]hook.RunID, MaxWriters+1)
	for i := range crowd {
		crowd[i] = hook.RunID{byte(i >> 8), byte(i)}
	}
	_, err := ReadWriterHello(WriterHelloProto(crowd[:MaxWriters]))
	require.NoError(t, err)
	for name, p := range map[string]*dispatchv1.WriterHello{
		"none":   nil,
		"short":  {WriterId: id, MoreWriterIds: [][]byte{id[:15]}},
		"double": {WriterId: id, MoreWriterIds: [][]byte{id}},
		"crowd":  WriterHelloProto(crowd),
	} {
		_, err := ReadWriterHello(p)
		require.ErrorIs(t, err, ErrMalformed, name)
	}
}

func TestOversizeReasonsAndResponsesAreCut(t *testing.T) {
	r := reports()[0]
	r.Outcome.Reason = strings.Repeat("é", hook.MaxReason)
	r.Outcome.Response = make([]byte, 4096)
	r.Outcome.RetryAfter = 1<<63 - 1
	p := &dispatchv1.Outcomes{Outcomes: ReportsProto([]hook.Report{r})}
	got, err := ReadReports(overTheWire(t, p, new(dispatchv1.Outcomes)).Outcomes)
	require.NoError(t, err)
	require.Equal(t, strings.Repeat("é", hook.MaxReason/2), got[0].Outcome.Reason)
	require.Len(t, got[0].Outcome.Response, hook.MaxResponse)
	require.Equal(t, maxPause, got[0].Outcome.RetryAfter)
}

func TestAReasonThatIsNotTextDoesNotStopTheMessage(t *testing.T) {
	r := reports()[0]
	r.Outcome.Reason = "http: \xff\xfe" + strings.Repeat("\xe2\x82", hook.MaxReason)
	p := &dispatchv1.Outcomes{Outcomes: ReportsProto([]hook.Report{r})}
	got, err := ReadReports(overTheWire(t, p, new(dispatchv1.Outcomes)).Outcomes)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(got[0].Outcome.Reason, "http: ?"))
}

func TestErrorCarriesReasonAndFields(t *testing.T) {
	err := Error(codes.FailedPrecondition, "source_has_deliveries", map[string]string{"pending": "3"})
	require.Equal(t, codes.FailedPrecondition, status.Code(err))
	reason, fields, ok := Reason(err)
	require.True(t, ok)
	require.Equal(t, "source_has_deliveries", reason)
	require.Equal(t, map[string]string{"pending": "3"}, fields)

	_, _, ok = Reason(errors.New("other"))
	require.False(t, ok)
	_, _, ok = Reason(status.Error(codes.Unavailable, "other"))
	require.False(t, ok)
	require.Equal(t, codes.Internal, status.Code(Error(codes.Internal, "bad", map[string]string{"x": "\xff"})))
}
