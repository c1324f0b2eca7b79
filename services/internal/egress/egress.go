// Package egress decides which addresses a sink may reach. The same rule holds when a source is written and when a
// connection is opened, and there it is judged on the address that is dialled, whatever name led to it.
package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"code.dny.dev/ssrf"
)

// ErrDenied is the kind of every refusal of a Policy.
var ErrDenied = errors.New("egress_denied")

// DeniedError is a refusal. Its text names the rule alone, never the address, the URL or the name.
type DeniedError struct{ Rule Rule }

// Rule is what a target broke.
type Rule string

// The rules, in the order in which they are checked.
const (
	RuleURL     Rule = "url"
	RuleScheme  Rule = "scheme"
	RulePort    Rule = "port"
	RuleAddress Rule = "address"
)

func (e *DeniedError) Error() string { return ErrDenied.Error() + " " + string(e.Rule) }

// Unwrap makes every refusal match ErrDenied.
func (e *DeniedError) Unwrap() error { return ErrDenied }

func denied(r Rule) error { return &DeniedError{Rule: r} }

// Config of a Policy.
type Config struct {
	// AllowHTTP allows URLs without TLS. Default false.
	AllowHTTP bool
	// AllowCIDRs are allowed although they are private or otherwise special. Default none.
	AllowCIDRs []netip.Prefix
	// DenyCIDRs are refused, whatever else allows them. Default none.
	DenyCIDRs []netip.Prefix
	// Ports that are allowed; none stands for all. Default none.
	Ports []int
}

// Policy is safe for concurrent use.
type Policy struct {
	allowHTTP   bool
	allow, deny []netip.Prefix
	ports       []int
	special     *ssrf.Guardian
}

// New makes a policy of valid prefixes.
func New(c Config) *Policy {
	return &Policy{
		allowHTTP: c.AllowHTTP, allow: plain(c.AllowCIDRs), deny: plain(c.DenyCIDRs), ports: slices.Clone(c.Ports),
		special: ssrf.New(ssrf.WithAnyPort(), ssrf.WithAnyNetwork()),
	}
}

// plain turns prefixes of mapped IPv4 addresses into those of IPv4, since addresses are judged in that form.
func plain(prefixes []netip.Prefix) []netip.Prefix {
	list := make([]netip.Prefix, 0, len(prefixes))
	for _, p := range prefixes {
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		list = append(list, p.Masked())
	}
	return list
}

// CheckURL parses the absolute URL of a sink and judges what can be judged without a look-up: scheme, user information,
// port, an address in place of a name, a name of the local host. It fails with a DeniedError.
func (p *Policy) CheckURL(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" || u.User != nil || u.Opaque != "" {
		return nil, denied(RuleURL)
	}
	if u.Scheme != "https" && (u.Scheme != "http" || !p.allowHTTP) {
		return nil, denied(RuleScheme)
	}
	port, err := portOf(u)
	if err != nil {
		return nil, err
	}
	if err := p.checkPort(port); err != nil {
		return nil, err
	}
	if err := p.checkHost(strings.ToLower(u.Hostname())); err != nil {
		return nil, err
	}
	return u, nil
}

func portOf(u *url.URL) (int, error) {
	switch {
	case u.Port() != "":
		port, err := strconv.ParseUint(u.Port(), 10, 16)
		if err != nil || port == 0 {
			return 0, denied(RuleURL)
		}
		return int(port), nil
	case u.Scheme == "https":
		return 443, nil
	default:
		return 80, nil
	}
}

func (p *Policy) checkPort(port int) error {
	if len(p.ports) > 0 && !slices.Contains(p.ports, port) {
		return denied(RulePort)
	}
	return nil
}

// checkHost judges a lower-case host. A name is left to the address that it leads to, except for those of the local
// host, which resolvers answer by themselves, and for spellings of an IPv4 address that some resolvers take.
func (p *Policy) checkHost(host string) error {
	if addr, err := netip.ParseAddr(host); err == nil {
		return p.CheckAddr(addr)
	}
	host = strings.TrimSuffix(host, ".")
	switch last := host[strings.LastIndexByte(host, '.')+1:]; {
	case last == "localhost":
		return p.CheckAddr(netip.AddrFrom4([4]byte{127, 0, 0, 1}))
	case last == "", isNumber(last):
		return denied(RuleURL)
	default:
		return nil
	}
}

// isNumber says whether the last label of a name makes it an IPv4 address to some parsers: digits, or 0x and digits.
func isNumber(label string) bool {
	if strings.Trim(label, "0123456789") == "" {
		return true
	}
	hex, ok := strings.CutPrefix(label, "0x")
	return ok && strings.Trim(hex, "0123456789abcdef") == ""
}

// Resolver looks names up, as *net.Resolver does.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// CheckResolved is CheckURL that also looks the name up and refuses one that leads to any address that is not allowed.
// A name that does not resolve is no refusal: it is judged when it is dialled.
func (p *Policy) CheckResolved(ctx context.Context, r Resolver, raw string) error {
	u, err := p.CheckURL(raw)
	if err != nil {
		return err
	}
	addrs, err := r.LookupNetIP(ctx, "ip", u.Hostname())
	if err != nil {
		return nil //nolint:nilerr // by contract
	}
	for _, addr := range addrs {
		if err := p.CheckAddr(addr); err != nil {
			return err
		}
	}
	return nil
}

// CheckAddr judges an address. One that carries another, such as mapped IPv4, NAT64 or 6to4, must be allowed itself, and
// so must the one that it carries.
func (p *Policy) CheckAddr(addr netip.Addr) error {
	addr = addr.WithZone("").Unmap()
	if !addr.IsValid() || !p.allowed(addr) {
		return denied(RuleAddress)
	}
	if inner, carries := carried(addr); carries && !p.allowed(inner) {
		return denied(RuleAddress)
	}
	return nil
}

func (p *Policy) allowed(addr netip.Addr) bool {
	switch {
	case within(p.deny, addr):
		return false
	case within(p.allow, addr):
		return true
	default:
		return p.special.SafeAddr(addr) == nil
	}
}

func within(prefixes []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// carriers are the IPv6 networks whose addresses stand for an IPv4 one, and where in the 16 bytes that begins.
var carriers = []struct {
	prefix netip.Prefix
	offset int
}{
	{netip.MustParsePrefix("64:ff9b::/96"), 12},    // NAT64
	{netip.MustParsePrefix("64:ff9b:1::/48"), 12},  // NAT64, local use, with the usual length of its prefix
	{netip.MustParsePrefix("2002::/16"), 2},        // 6to4
	{netip.MustParsePrefix("::/96"), 12},           // IPv4-compatible
	{netip.MustParsePrefix("::ffff:0:0:0/96"), 12}, // IPv4-translated
}

func carried(addr netip.Addr) (netip.Addr, bool) {
	if !addr.Is6() {
		return netip.Addr{}, false
	}
	b := addr.As16()
	for _, c := range carriers {
		if c.prefix.Contains(addr) && addr != netip.IPv6Loopback() && addr != netip.IPv6Unspecified() {
			return netip.AddrFrom4([4]byte(b[c.offset : c.offset+4])), true
		}
	}
	return netip.Addr{}, false
}

// Control judges a connection before it is opened; it is a net.Dialer's Control. The address is the one that is dialled.
func (p *Policy) Control(network, address string, _ syscall.RawConn) error {
	if network != "tcp4" && network != "tcp6" {
		return denied(RuleAddress)
	}
	target, err := netip.ParseAddrPort(address)
	if err != nil {
		return denied(RuleAddress)
	}
	if err := p.checkPort(int(target.Port())); err != nil {
		return err
	}
	return p.CheckAddr(target.Addr())
}

// Dialer opens the connections that the policy allows; a refused one fails with a DeniedError within.
func (p *Policy) Dialer() *net.Dialer { return &net.Dialer{Control: p.Control} }

// String describes the policy for a log.
func (p *Policy) String() string {
	return fmt.Sprintf("http %t, allow %v, deny %v, ports %v", p.allowHTTP, p.allow, p.deny, p.ports)
}
