package httpsink

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func answer(status int, retryAfter string) *http.Response {
	r := &http.Response{StatusCode: status, Header: http.Header{}}
	if retryAfter != "" {
		r.Header.Set("Retry-After", retryAfter)
	}
	return r
}

func TestTheStatusDecides(t *testing.T) {
	classes := map[int]hook.Class{
		200: hook.Delivered, 201: hook.Delivered, 202: hook.Delivered, 204: hook.Delivered, 299: hook.Delivered,
		400: hook.Permanent, 401: hook.Permanent, 403: hook.Permanent, 404: hook.Permanent, 410: hook.Permanent,
		413: hook.Permanent, 422: hook.Permanent, 451: hook.Permanent, 425: hook.Throttled,
	}
	for status := 100; status < 1000; status++ {
		want, special := classes[status]
		switch {
		case special:
		case status/100 == 2:
			want = hook.Delivered
		default:
			want = hook.Transient
		}
		require.Equal(t, want, judge(answer(status, ""), 1, now).Class, status)
	}
	require.Equal(t, "http: status 503", judge(answer(503, ""), 1, now).Reason)
	require.EqualValues(t, 503, judge(answer(503, ""), 1, now).Status)
	require.Empty(t, judge(answer(204, ""), 1, now).Reason)
}

func TestL22_RetryAfterCountsForTheStatusesThatAskForAPause(t *testing.T) {
	for status, want := range map[int]hook.Class{
		408: hook.Throttled, 425: hook.Throttled, 429: hook.Throttled, 500: hook.Throttled, 503: hook.Throttled,
		599: hook.Throttled, 409: hook.Transient, 404: hook.Permanent, 302: hook.Transient, 200: hook.Delivered,
	} {
		o := judge(answer(status, "7"), 1, now)
		require.Equal(t, want, o.Class, status)
		if want == hook.Throttled {
			require.Equal(t, 7*time.Second, o.RetryAfter, status)
		} else {
			require.Zero(t, o.RetryAfter, status)
		}
	}
	require.Equal(t, hook.Transient, judge(answer(429, ""), 1, now).Class)
	require.Equal(t, hook.Transient, judge(answer(503, "soon"), 1, now).Class)
}

func TestL22_EveryFormOfRetryAfterIsRead(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"0": 0, "1": time.Second, "120": 2 * time.Minute, "007": 7 * time.Second,
		"99999999999": maxPause, "99999999999999999999999999": maxPause,
		now.Add(90 * time.Second).Format(http.TimeFormat):           90 * time.Second,
		now.Add(time.Minute).Format(time.RFC850):                    time.Minute,
		now.Add(time.Minute).Format(time.ANSIC):                     time.Minute,
		now.Add(-time.Hour).Format(http.TimeFormat):                 0,
		now.Add(200 * 366 * 24 * time.Hour).Format(http.TimeFormat): maxPause,
	} {
		got, asked := retryAfter(value, now)
		require.True(t, asked, value)
		require.Equal(t, want, got, value)
	}
	got, asked := retryAfter(" 120\t", now)
	require.True(t, asked)
	require.Equal(t, 2*time.Minute, got)
	for _, nonsense := range []string{"", " ", "-1", "+5", "1.5", "1e3", "soon", "0x10", "5s", "1,2", "2026-03-01"} {
		got, asked := retryAfter(nonsense, now)
		require.False(t, asked, nonsense)
		require.Zero(t, got, nonsense)
	}
}

func TestL20_TooEarlyPausesAtRandomWithinABoundThatGrows(t *testing.T) {
	seen := map[time.Duration]bool{}
	for attempt, bound := range map[uint32]time.Duration{
		0: 500 * time.Millisecond, 1: 500 * time.Millisecond, 2: time.Second, 6: 16 * time.Second,
		7: 30 * time.Second, 64: 30 * time.Second, 1 << 31: 30 * time.Second,
	} {
		for range 50 {
			o := judge(answer(425, ""), attempt, now)
			require.GreaterOrEqual(t, o.RetryAfter, time.Millisecond)
			require.LessOrEqual(t, o.RetryAfter, bound+time.Millisecond)
			seen[o.RetryAfter] = true
		}
	}
	require.Greater(t, len(seen), 50)
}
