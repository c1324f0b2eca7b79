// Package rpc makes the gRPC servers and clients of the processes: their security, limits, liveness checks and health.
// It knows no service.
package rpc

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// Files names the PEM files of a process: its certificate, the key of it, and the authorities that sign its peers'.
// The zero value means plaintext.
type Files struct{ Cert, Key, CA string }

// Security is what a process shows its peers and demands of them.
type Security struct {
	server, client *tls.Config
}

// LoadSecurity reads the files. With them both sides of every connection show a certificate that the authorities
// signed; without them connections are plaintext.
func LoadSecurity(f Files) (Security, error) {
	if f == (Files{}) {
		return Security{}, nil
	}
	certificate, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return Security{}, fmt.Errorf("load certificate %s: %w", f.Cert, err)
	}
	authorities, err := loadAuthorities(f.CA)
	if err != nil {
		return Security{}, err
	}
	own := []tls.Certificate{certificate}
	return Security{
		server: &tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: own,
			ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: authorities,
		},
		client: &tls.Config{MinVersion: tls.VersionTLS13, Certificates: own, RootCAs: authorities},
	}, nil
}

var errNoAuthority = errors.New("no certificate in it")

func loadAuthorities(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("load authorities: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("load authorities %s: %w", path, errNoAuthority)
	}
	return pool, nil
}

// Plaintext says whether connections are not encrypted.
func (s Security) Plaintext() bool { return s.server == nil }

func (s Security) forServer() credentials.TransportCredentials { return transport(s.server) }
func (s Security) forClient() credentials.TransportCredentials { return transport(s.client) }

func transport(c *tls.Config) credentials.TransportCredentials {
	if c == nil {
		return insecure.NewCredentials()
	}
	return credentials.NewTLS(c)
}
