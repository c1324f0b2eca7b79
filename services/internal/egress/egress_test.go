package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func prefixes(list ...string) (all []netip.Prefix) {
	for _, s := range list {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

func ruleOf(t *testing.T, err error) Rule {
	t.Helper()
	if err == nil {
		return ""
	}
	require.ErrorIs(t, err, ErrDenied)
	var d *DeniedError
	require.ErrorAs(t, err, &d)
	require.Equal(t, "egress_denied "+string(d.Rule), err.Error())
	return d.Rule
}

// bypasses are spellings of addresses that must never be reached under the default policy.
var bypasses = []string{
	"127.0.0.1", "127.8.8.8", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.169.254",
	"224.0.0.1", "255.255.255.255", "192.0.2.1", "198.18.0.1",
	"::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "ff02::1", "2001:db8::1",
	"::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:a9fe:a9fe", "::127.0.0.1", "::ffff:0:127.0.0.1",
	"64:ff9b::127.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::10.0.0.1", "2002:7f00:1::", "2002:a9fe:a9fe::1",
	"2001:0:7f00:1::1", // Teredo
}

func TestL39_SpecialAddressesAreDeniedInEverySpelling(t *testing.T) {
	p := New(Config{})
	for _, text := range bypasses {
		addr := netip.MustParseAddr(text)
		require.Equal(t, RuleAddress, ruleOf(t, p.CheckAddr(addr)), text)
		network := "tcp6"
		if addr.Is4() {
			network = "tcp4"
		}
		require.Equal(t, RuleAddress, ruleOf(t, p.Control(network, netip.AddrPortFrom(addr, 443).String(), nil)), text)
		if addr.Zone() != "" {
			continue
		}
		host := text
		if addr.Is6() {
			host = "[" + text + "]"
		}
		_, err := p.CheckURL("https://" + host + "/hook")
		require.Equal(t, RuleAddress, ruleOf(t, err), text)
	}
	for _, text := range []string{"1.1.1.1", "93.184.216.34", "2606:4700::1111", "::ffff:1.1.1.1"} {
		require.NoError(t, p.CheckAddr(netip.MustParseAddr(text)), text)
	}
	require.Equal(t, RuleAddress, ruleOf(t, p.CheckAddr(netip.Addr{})))
	require.Equal(t, RuleAddress, ruleOf(t, p.Control("udp4", "1.1.1.1:443", nil)))
	require.Equal(t, RuleAddress, ruleOf(t, p.Control("tcp4", "example.com:443", nil)))
}

func TestL39_AnAllowedCarrierDoesNotAllowWhatItCarries(t *testing.T) {
	p := New(Config{AllowCIDRs: prefixes("64:ff9b::/96", "2002::/16")})
	require.NoError(t, p.CheckAddr(netip.MustParseAddr("64:ff9b::1.1.1.1")))
	require.Error(t, p.CheckAddr(netip.MustParseAddr("64:ff9b::127.0.0.1")))
	require.Error(t, p.CheckAddr(netip.MustParseAddr("2002:a00:1::")))
}

func TestL40_AllowedAndDeniedNetworksHoldAtBothPlaces(t *testing.T) {
	p := New(Config{
		AllowHTTP:  true,
		AllowCIDRs: prefixes("127.0.0.0/8", "::ffff:10.0.0.0/104", "::1/128"),
		DenyCIDRs:  prefixes("127.0.0.2/32", "1.1.1.0/24"),
		Ports:      []int{8080},
	})
	for target, rule := range map[string]Rule{
		"127.0.0.1:8080": "", "127.0.0.2:8080": RuleAddress, "10.9.9.9:8080": "", "1.1.1.1:8080": RuleAddress,
		"[::1]:8080": "", "127.0.0.1:8081": RulePort, "192.168.0.1:8080": RuleAddress, "[::ffff:127.0.0.1]:8080": "",
		"[::ffff:127.0.0.2]:8080": RuleAddress,
	} {
		_, err := p.CheckURL("http://" + target + "/x?y=z")
		require.Equal(t, rule, ruleOf(t, err), target)
		require.Equal(t, rule, ruleOf(t, p.Control("tcp4", target, nil)), target)
	}
}

func TestURLsThatNoSinkMayHaveAreDenied(t *testing.T) {
	p := New(Config{})
	for raw, rule := range map[string]Rule{
		"https://example.com/a":          "",
		"https://example.com:8443/a?b=c": "",
		"HTTPS://EXAMPLE.COM":            "",
		"http://example.com":             RuleScheme,
		"ftp://example.com":              RuleScheme,
		"example.com":                    RuleURL,
		"https:///a":                     RuleURL,
		"https:example.com":              RuleURL,
		"https://user:pass@example.com":  RuleURL,
		"https://example.com:0":          RuleURL,
		"https://example.com:65536":      RuleURL,
		"https://example.com:x":          RuleURL,
		"https://localhost":              RuleAddress,
		"https://a.LOCALHOST.":           RuleAddress,
		"https://127.1":                  RuleURL,
		"https://2130706433":             RuleURL,
		"https://0x7f000001":             RuleURL,
		"https://0177.0.0.1":             RuleURL,
		"https://a.0x7f":                 RuleURL,
		"https://.":                      RuleURL,
		"https://%31%32%37.0.0.1":        RuleURL,
		"://":                            RuleURL,
	} {
		_, err := p.CheckURL(raw)
		require.Equal(t, rule, ruleOf(t, err), raw)
	}
	_, err := New(Config{AllowHTTP: true, AllowCIDRs: prefixes("127.0.0.0/8")}).CheckURL("http://localhost:1234")
	require.NoError(t, err)
}

type names map[string][]netip.Addr

func (n names) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	if addrs := n[host]; addrs != nil {
		return addrs, nil
	}
	return nil, errors.New("no such host")
}

func TestL39_ANameThatLeadsToADeniedAddressIsDeniedAtCreate(t *testing.T) {
	public, private := netip.MustParseAddr("1.1.1.1"), netip.MustParseAddr("10.0.0.1")
	r := names{"good.example": {public}, "mixed.example": {public, private}}
	p := New(Config{})
	require.NoError(t, p.CheckResolved(t.Context(), r, "https://good.example"))
	require.NoError(t, p.CheckResolved(t.Context(), r, "https://unknown.example"))
	require.Equal(t, RuleAddress, ruleOf(t, p.CheckResolved(t.Context(), r, "https://mixed.example")))
	require.Equal(t, RuleScheme, ruleOf(t, p.CheckResolved(t.Context(), r, "http://good.example")))
}

func TestL39_TheDialerRefusesWhateverNameLedToTheAddress(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, listener.Close()) }()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)

	dialer := New(Config{}).Dialer()
	dialer.Timeout = 5 * time.Second
	_, err = dialer.DialContext(t.Context(), "tcp", net.JoinHostPort("localhost", port))
	require.Equal(t, RuleAddress, ruleOf(t, errors.Unwrap(err)))

	conn, err := New(Config{AllowCIDRs: prefixes("127.0.0.0/8")}).Dialer().DialContext(t.Context(), "tcp",
		net.JoinHostPort("127.0.0.1", port))
	require.NoError(t, err)
	require.NoError(t, conn.Close())
}

func FuzzCheckURL(f *testing.F) {
	for _, seed := range append(bypasses, "example.com", "127.1", "[::1]", "a%2fb") {
		f.Add("https://" + seed + "/")
	}
	p := New(Config{})
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := p.CheckURL(raw)
		if err != nil {
			require.ErrorIs(t, err, ErrDenied)
			return
		}
		require.Equal(t, "https", u.Scheme)
		if addr, err := netip.ParseAddr(u.Hostname()); err == nil {
			require.False(t, addr.IsLoopback() || addr.IsPrivate() || addr.IsUnspecified() || addr.IsMulticast())
		}
	})
}
