package receiver

import (
	"net"
	"net/http"
	"strconv"
	"time"

	"ankusa.dev/e2e/internal/history"
)

// Exchange is one request that waits for its answer.
type Exchange struct {
	w       http.ResponseWriter
	req     *http.Request
	body    []byte
	try     int
	attempt *history.Attempt
}

// Behaviour answers, or does not.
type Behaviour func(*Exchange)

// Answer answers with a status at once.
func Answer(status int) Behaviour {
	return func(x *Exchange) { x.answer(status) }
}

// RetryAfter answers with a status and asks for a pause of whole seconds.
func RetryAfter(status int, pause time.Duration) Behaviour {
	return func(x *Exchange) {
		x.w.Header().Set("Retry-After", strconv.Itoa(int(pause/time.Second)))
		x.attempt.RetryAfter = pause
		x.answer(status)
	}
}

// After waits before it behaves; a sender that leaves meanwhile gets nothing.
func After(pause time.Duration, then Behaviour) Behaviour {
	return func(x *Exchange) {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		select {
		case <-timer.C:
			then(x)
		case <-x.req.Context().Done():
			panic(http.ErrAbortHandler)
		}
	}
}

// Script behaves by the number of the hook's try at this path; the last behaviour holds for all further ones.
func Script(steps ...Behaviour) Behaviour {
	return func(x *Exchange) { steps[min(x.try, len(steps))-1](x) }
}

// ByLane behaves by the ordering key of the delivery; rest holds for all keys that are not named.
func ByLane(lanes map[string]Behaviour, rest Behaviour) Behaviour {
	return func(x *Exchange) {
		if b := lanes[x.attempt.OrderingKey]; b != nil {
			b(x)
			return
		}
		rest(x)
	}
}

// Hang never answers and keeps the connection until the sender gives up.
func Hang() Behaviour {
	return func(x *Exchange) {
		<-x.req.Context().Done()
		panic(http.ErrAbortHandler)
	}
}

// Reset resets the connection instead of answering. The attempt ends before that: a sender that had used the connection
// before may be back on another one before the reset returns.
func Reset() Behaviour {
	return func(x *Exchange) {
		c, _, err := http.NewResponseController(x.w).Hijack()
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		if t, ok := c.(*net.TCPConn); ok {
			_ = t.SetLinger(0)
		}
		x.attempt.Answered = time.Now()
		_ = c.Close()
	}
}

// SendBack confirms and then sends the request's body as an answer that nobody asked for.
func SendBack() Behaviour {
	return func(x *Exchange) {
		c, _, err := http.NewResponseController(x.w).Hijack()
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		x.attempt.Status = http.StatusNoContent
		x.attempt.Answered = time.Now()
		_, _ = c.Write(append([]byte("HTTP/1.1 204 No Content\r\n\r\n"), x.body...)) // a sender that has left
		_ = c.Close()
	}
}

// Redirect answers 307 towards another path of the receiver.
func Redirect(path string) Behaviour {
	return func(x *Exchange) {
		x.w.Header().Set("Location", path)
		x.answer(http.StatusTemporaryRedirect)
	}
}

// Endless answers a status and a body that does not end before the sender leaves.
func Endless(status int) Behaviour {
	return func(x *Exchange) {
		x.answer(status)
		chunk := make([]byte, 16<<10)
		for {
			if _, err := x.w.Write(chunk); err != nil {
				return
			}
		}
	}
}

func (x *Exchange) answer(status int) {
	x.attempt.Status = status
	x.w.WriteHeader(status)
}
