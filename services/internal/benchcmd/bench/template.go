package bench

import (
	"context"
	"fmt"

	"ankusa.dev/services/internal/benchcmd/seed"
)

// tenants are n names.
func tenants(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%d", prefix, i)
	}
	return names
}

// waiting is a store in which each of some tenants has as many rows of one sink, due and in no order.
func waiting(tenantCount, each int) seed.Template {
	return seed.Template{
		Name: fmt.Sprintf("waiting-%dx%d", tenantCount, each),
		Fill: func(ctx context.Context, s *seed.Seeder) error { return addWaiting(ctx, s, tenantCount, each) },
	}
}

func addWaiting(ctx context.Context, s *seed.Seeder, tenantCount, each int) error {
	src, err := s.Source(ctx, "active", false)
	if err != nil {
		return err
	}
	return s.Add(ctx, seed.Rows{Source: src, Tenants: tenants("active", tenantCount), Each: each})
}
