package harness

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc/credentials"
)

// Authority signs certificates of processes on this machine.
type Authority struct {
	dir  string
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

// NewAuthority makes one whose files lie in a new directory.
func NewAuthority(dir string) (*Authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	a := &Authority{dir: dir}
	template := template("authority of " + filepath.Base(dir))
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	var err error
	if a.cert, a.key, err = a.sign(template); err != nil {
		return nil, err
	}
	return a, a.write("ca.pem", "CERTIFICATE", a.cert.Raw)
}

func template(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.ParseIP(Loopback)},
	}
}

// sign makes a key and its certificate, which is the authority's own where there is none yet.
func (a *Authority) sign(template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	parent, signer := template, key
	if a.cert != nil {
		parent, signer = a.cert, a.key
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return nil, nil, fmt.Errorf("sign a certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(raw)
	return cert, key, err
}

func (a *Authority) write(name, kind string, raw []byte) error {
	return os.WriteFile(a.path(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}), 0o600)
}

func (a *Authority) path(name string) string { return filepath.Join(a.dir, name) }

// Issue makes a certificate and returns the settings of a process that shows it and trusts the authority.
func (a *Authority) Issue(name string) (Settings, error) {
	cert, key, err := a.sign(template(name))
	if err != nil {
		return nil, err
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err == nil {
		err = a.write(name+".pem", "CERTIFICATE", cert.Raw)
	}
	if err == nil {
		err = a.write(name+".key", "PRIVATE KEY", raw)
	}
	return Settings{"rpc.tls.cert": a.path(name + ".pem"), "rpc.tls.key": a.path(name + ".key"), "rpc.tls.ca": a.path("ca.pem")}, err
}

// credentials are those of a client that the authority signed.
func (a *Authority) credentials() (credentials.TransportCredentials, error) {
	cert, key, err := a.sign(template("client"))
	if err != nil {
		return nil, err
	}
	trusted := x509.NewCertPool()
	trusted.AddCert(a.cert)
	own := tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
	return credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{own}, RootCAs: trusted}), nil
}
