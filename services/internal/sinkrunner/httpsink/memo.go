package httpsink

import "sync"

// maxMemo bounds what a memo remembers.
const maxMemo = 1024

// memo remembers what was made of the settings that deliveries come with again and again. The zero value is empty.
type memo[K comparable, V any] struct {
	mu    sync.RWMutex
	known map[K]V
}

// of returns what produce makes of k. Errors are not remembered.
func (m *memo[K, V]) of(k K, produce func(K) (V, error)) (V, error) {
	m.mu.RLock()
	v, ok := m.known[k]
	m.mu.RUnlock()
	if ok {
		return v, nil
	}
	v, err := produce(k)
	if err == nil {
		m.remember(k, v)
	}
	return v, err
}

// remember begins anew where there is too much: what is still used is made again.
func (m *memo[K, V]) remember(k K, v V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil || len(m.known) >= maxMemo {
		m.known = map[K]V{}
	}
	m.known[k] = v
}
