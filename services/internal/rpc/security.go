// Package rpc makes the gRPC servers and clients of the processes: their security, limits, liveness checks and health.
// It knows no service.
package rpc

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"go.uber.org/zap"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// Files names the PEM files of a process: its certificate, the key of it, and the authorities that sign its peers'.
// The zero value means plaintext.
type Files struct{ Cert, Key, CA string }

// Security is what a process shows its peers and demands of them.
type Security struct {
	server, client *tls.Config
	log            *zap.Logger
}

// LoadSecurity reads the files. With them both sides of every connection show a certificate that the authorities
// signed, and handshakes that fail are logged; without them connections are plaintext.
func LoadSecurity(f Files, log *zap.Logger) (Security, error) {
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
	return Security{
		server: &tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate},
			ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: authorities,
		},
		client: &tls.Config{
			MinVersion: tls.VersionTLS13, RootCAs: authorities,
			// Shown to every server: one that does not trust it says so, where it would else miss a certificate.
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certificate, nil },
		},
		log: log,
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

func (s Security) forServer() credentials.TransportCredentials { return s.transport(s.server) }
func (s Security) forClient() credentials.TransportCredentials { return s.transport(s.client) }

func (s Security) transport(c *tls.Config) credentials.TransportCredentials {
	if c == nil {
		return insecure.NewCredentials()
	}
	return logged(credentials.NewTLS(c), s.log)
}
