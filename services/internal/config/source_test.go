package config

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/source"
)

// names resolves what it holds; whatever else is asked for hangs.
type names map[string]string

func (n names) LookupNetIP(ctx context.Context, _, host string) ([]netip.Addr, error) {
	if address, ok := n[host]; ok {
		return []netip.Addr{netip.MustParseAddr(address)}, nil
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

func sending(urls ...string) *source.Source {
	s := source.New(hook.DefaultTenant, "s")
	for _, url := range urls {
		s.Sinks = append(s.Sinks, source.Sink{Type: source.SinkHTTP, HTTP: source.HTTP{URL: url}})
	}
	return s
}

func TestL39_ASourceIsJudgedByTheAddressesOfItsNamesWhenItIsWritten(t *testing.T) {
	check := Default().CheckEgress(names{"in.example": "10.0.0.1", "out.example": "1.1.1.1"})
	require.NoError(t, check(sending("https://out.example/a")))
	err := check(sending("https://out.example/a", "https://in.example/secret", "http://out.example/"))
	var faults source.Faults
	require.ErrorAs(t, err, &faults)
	require.Len(t, faults, 2)
	require.Equal(t, "sinks.1.url", faults[0].Key)
	require.Equal(t, "sinks.2.url", faults[1].Key)
	require.NotContains(t, err.Error(), "example")
}

func TestNamesThatDoNotResolveInTimeAreLeftToTheDialer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		check := Default().CheckEgress(names{})
		began := time.Now()
		require.NoError(t, check(sending("https://a.example/", "https://b.example/")))
		require.Equal(t, 2*time.Second, time.Since(began), "all of them together")
	})
}
