package gateway

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// OnlyHosts refuses requests that name a host other than localhost, an address of the loopback network or one of names,
// with 403. A handler that is bound to loopback needs it: a page in the operator's browser can give a name of its own the
// address 127.0.0.1 and would then be of the same site as the API.
func OnlyHosts(next http.Handler, names ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !local(hostname(r.Host)) && !slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, hostname(r.Host)) }) {
			refuse(w, http.StatusForbidden, "forbidden", map[string]any{
				"message": "the header Host names neither this machine nor one of admin.hosts",
			})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// hostname is a Host without its port, its brackets and the dot at its end.
func hostname(host string) string {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	return strings.TrimSuffix(name, ".")
}

func local(name string) bool {
	address, err := netip.ParseAddr(name)
	return strings.EqualFold(name, "localhost") || err == nil && address.Unmap().IsLoopback()
}
