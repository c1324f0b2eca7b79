// Package bare holds what the product is measured against: the least that anybody would write for the same job.
package bare

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/google/uuid"
)

// Store answers 201 once a request's hook is one synced key of an embedded store.
type Store struct{ DB *pebble.DB }

func (s Store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	id, err := uuid.NewV7()
	if err == nil {
		err = s.DB.Set(id[:], encode(r.Header, body), pebble.Sync)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_, _ = fmt.Fprintf(w, `{"id":"%s","status":"accepted"}`, id)
}

// encode is a hook as anybody would store it: time, headers, body.
func encode(header http.Header, body []byte) []byte {
	b := make([]byte, 0, len(body)+256)
	b = binary.BigEndian.AppendUint64(b, uint64(time.Now().UnixMilli()))
	b = binary.AppendUvarint(b, uint64(len(header)))
	for name, values := range header {
		for _, v := range values {
			b = binary.AppendUvarint(b, uint64(len(name)))
			b = append(b, name...)
			b = binary.AppendUvarint(b, uint64(len(v)))
			b = append(b, v...)
		}
	}
	return append(b, body...)
}

// Relay posts a request's body on and answers 201 once the other side has confirmed.
type Relay struct {
	Client *http.Client
	To     string
}

func (s Relay) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = post(r.Context(), s.Client, s.To, body)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	w.WriteHeader(http.StatusCreated)
}

func post(ctx context.Context, client *http.Client, url string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("post: %s", resp.Status)
	}
	return nil
}

// Client keeps as many connections to one host as it is told.
func Client(conns int) *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConns: conns, MaxIdleConnsPerHost: conns, MaxConnsPerHost: conns}}
}

// Drain posts n bodies to url over workers connections and returns how long that took.
func Drain(ctx context.Context, url string, n, workers, size int) (time.Duration, error) {
	client := Client(workers)
	defer client.CloseIdleConnections()
	body := bytes.Repeat([]byte("x"), size)
	began := time.Now()
	var next atomic.Int64
	errs := make(chan error, workers)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for next.Add(1) <= int64(n) {
				if err := post(ctx, client, url, body); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	return time.Since(began), <-errs
}
