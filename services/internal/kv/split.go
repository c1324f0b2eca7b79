package kv

import "context"

// Splitter is implemented by stores that keep ranges of keys on different machines.
type Splitter interface {
	// Split makes each key the first of a range of its own, so that what is below it and what is above it need not
	// stand on one machine. It changes no data, and may be repeated.
	Split(ctx context.Context, keys [][]byte) error
}

// AsSplitter finds the Splitter in a store, or in the one that it wraps: a wrapper tells by a method Unwrap() Store.
func AsSplitter(s Store) (Splitter, bool) {
	for {
		if splitter, ok := s.(Splitter); ok {
			return splitter, true
		}
		wrapper, ok := s.(interface{ Unwrap() Store })
		if !ok {
			return nil, false
		}
		s = wrapper.Unwrap()
	}
}
