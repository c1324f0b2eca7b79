package rpc_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"ankusa.dev/services/internal/rpc"
)

// authority signs certificates for 127.0.0.1.
type authority struct {
	t    *testing.T
	dir  string
	log  *zap.Logger // of its processes
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir(), log: zap.NewNop()}
	template := certificate("authority in " + a.dir)
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	a.cert, a.key = a.sign(template, nil)
	a.write("ca.pem", "CERTIFICATE", a.cert.Raw)
	return a
}

func certificate(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.ParseIP("127.0.0.1")},
	}
}

func (a *authority) sign(template *x509.Certificate, by *authority) (*x509.Certificate, *ecdsa.PrivateKey) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	parent, signer := template, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	require.NoError(a.t, err)
	cert, err := x509.ParseCertificate(raw)
	require.NoError(a.t, err)
	return cert, key
}

func (a *authority) write(name, kind string, raw []byte) string {
	path := filepath.Join(a.dir, name)
	require.NoError(a.t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}), 0o600))
	return path
}

// security of a process that this authority signed and that trusts what trusted signed.
func (a *authority) security(trusted *authority) rpc.Security {
	cert, key := a.sign(certificate("process"), a)
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(a.t, err)
	s, err := rpc.LoadSecurity(rpc.Files{
		Cert: a.write("cert.pem", "CERTIFICATE", cert.Raw), Key: a.write("key.pem", "PRIVATE KEY", raw),
		CA: filepath.Join(trusted.dir, "ca.pem"),
	}, a.log)
	require.NoError(a.t, err)
	return s
}

func TestWithCertificatesBothSidesMustShowATrustedOne(t *testing.T) {
	ours, foreign := newAuthority(t), newAuthority(t)
	p := newPeer("p", zap.NewNop(), ours.security(ours))
	l := listen(t, "127.0.0.1:0")
	p.leads(true)
	stop := p.serve(l)
	for name, c := range map[string]struct {
		security rpc.Security
		works    bool
	}{
		"ours":                        {ours.security(ours), true},
		"plaintext":                   {rpc.Security{}, false},
		"client of another":           {foreign.security(ours), false},
		"client trusts another":       {ours.security(foreign), false},
		"client of another, likewise": {foreign.security(foreign), false},
	} {
		conn, err := rpc.Dial([]string{l.Addr().String()}, service, c.security)
		require.NoError(t, err)
		wait := 300 * time.Millisecond
		if c.works {
			wait = 5 * time.Second
		}
		_, err = call(within(t, wait), conn)
		require.Equal(t, c.works, err == nil, "%s: %v", name, err)
		require.NoError(t, conn.Close())
	}
	require.NoError(t, stop())
}

// Both sides say what is wrong, in words that name the certificate's fault.
func TestAFailedHandshakeIsLogged(t *testing.T) {
	for name, c := range map[string]struct {
		client         func(ours, foreign *authority) rpc.Security
		server, dialer string
	}{
		"client of another":     {func(ours, foreign *authority) rpc.Security { return foreign.security(ours) }, "unknown authority", ""},
		"client trusts another": {func(ours, foreign *authority) rpc.Security { return foreign.security(foreign) }, "bad certificate", "unknown authority"},
		"plaintext":             {func(_, _ *authority) rpc.Security { return rpc.Security{} }, "does not look like a TLS handshake", ""},
	} {
		t.Run(name, func(t *testing.T) {
			ours, foreign := newAuthority(t), newAuthority(t)
			served, atServer := observer.New(zap.DebugLevel)
			dialled, atClient := observer.New(zap.DebugLevel)
			ours.log = zap.New(served)
			p := newPeer("p", zap.NewNop(), ours.security(ours))
			l := listen(t, "127.0.0.1:0")
			p.leads(true)
			stop := p.serve(l)
			ours.log, foreign.log = zap.New(dialled), zap.New(dialled)
			conn, err := rpc.Dial([]string{l.Addr().String()}, service, c.client(ours, foreign))
			require.NoError(t, err)
			_, err = call(within(t, 300*time.Millisecond), conn)
			require.Error(t, err)
			require.NoError(t, conn.Close())
			require.NoError(t, stop())
			requireLogged(t, atServer, "TLS handshake with a client failed", c.server)
			if c.dialer != "" {
				requireLogged(t, atClient, "TLS handshake with a server failed", c.dialer)
			}
		})
	}
}

func requireLogged(t *testing.T, logs *observer.ObservedLogs, message, reason string) {
	t.Helper()
	entries := logs.FilterMessage(message).All()
	require.NotEmpty(t, entries)
	require.Contains(t, entries[0].ContextMap()["error"], reason)
}

func TestSecurityThatCannotBeLoadedIsAnError(t *testing.T) {
	a := newAuthority(t)
	_ = a.security(a)
	cert, key := filepath.Join(a.dir, "cert.pem"), filepath.Join(a.dir, "key.pem")
	for name, files := range map[string]rpc.Files{
		"no certificate":      {Cert: "/nothing", Key: key, CA: cert},
		"no authorities":      {Cert: cert, Key: key, CA: "/nothing"},
		"authorities of none": {Cert: cert, Key: key, CA: key},
	} {
		_, err := rpc.LoadSecurity(files, zap.NewNop())
		require.Error(t, err, name)
	}
	s, err := rpc.LoadSecurity(rpc.Files{}, zap.NewNop())
	require.NoError(t, err)
	require.True(t, s.Plaintext())
}
