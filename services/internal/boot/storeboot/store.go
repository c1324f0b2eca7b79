// Package storeboot opens the store of a process.
package storeboot

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"ankusa.dev/services/internal/boot"
	"ankusa.dev/services/internal/kv"
	"ankusa.dev/services/internal/kv/meterkv"
	"ankusa.dev/services/internal/store"
)

// Open opens the driver that a process's configuration names. ctx bounds the opening alone.
type Open func(ctx context.Context, p *boot.Process) (kv.Store, error)

// Add opens the store, which the process owns from then on, and returns its durable operations and its port.
func Add(ctx context.Context, p *boot.Process, open Open) (*store.Store, kv.Store, error) {
	port, err := open(ctx, p)
	if err != nil {
		return nil, nil, fmt.Errorf("open the %s store: %w", p.Config.Store.Type, err)
	}
	p.Owns("store", port)
	s, err := store.Open(ctx, metered(port, p.Metrics), store.Options{
		Partitions: p.Config.Store.Partitions,
		Unsplit:    func(err error) { p.Log.Warn("new store not split at its partitions", zap.Error(err)) },
	})
	if err != nil {
		return nil, nil, err
	}
	return s, port, nil
}

// metered counts the calls through the port by what they are for.
func metered(port kv.Store, r prometheus.Registerer) kv.Store {
	calls := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ankusa_store_calls_total", Help: "Calls through the store's port, by what the first key they touch is for.",
	}, []string{"class"})
	r.MustRegister(calls)
	return meterkv.New(port, store.Class, func(class string) { calls.WithLabelValues(class).Inc() })
}
