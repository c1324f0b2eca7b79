package core

import (
	"cmp"
	"slices"
)

// Load is what one tenant holds.
type Load struct {
	Tenant  string
	Claimed int // rows in its window
}

// Busiest lists the n tenants that hold the most rows, the fullest first and equals by name. It costs time for every
// tenant that has work.
func (c *Core) Busiest(n int) []Load {
	all := make([]Load, 0, len(c.tenants))
	for _, t := range c.tenants {
		if t.window.rows > 0 {
			all = append(all, Load{t.id, t.window.rows})
		}
	}
	slices.SortFunc(all, func(a, b Load) int {
		return cmp.Or(cmp.Compare(b.Claimed, a.Claimed), cmp.Compare(a.Tenant, b.Tenant))
	})
	return all[:min(n, len(all))]
}
