package tikv

import (
	"errors"
	"fmt"
	"net"
	"time"
)

// Config says where the cluster is and how much of it this store may use.
type Config struct {
	// PD are the client addresses (host:port) of PD's members, at least one. All are found from any. No default.
	PD []string
	// TLS secures the connections to PD and TiKV. Empty means plaintext.
	TLS TLS
	// KeyPrefix stands before every key, so that several users share a cluster. At least one byte, the first below
	// 0xff. It is fixed for the life of the data. Default "a".
	KeyPrefix string
	// Patience is how long a call tries to reach a cluster that does not answer, unless its context ends sooner,
	// before it fails with kv.ErrUnavailable. More than zero. Default 10 s.
	Patience time.Duration
	// GC is the collection of old versions.
	GC GC
}

// TLS names PEM files. Cert and Key go together, and need CA.
type TLS struct{ CA, Cert, Key string }

// GC says whether this store collects the cluster's old versions, and how.
type GC struct {
	// Enabled lets the store collect. It must be false where TiDB or another GC worker shares the cluster.
	// Default true.
	Enabled bool
	// Settle is the pause between publishing a new safe point and using it. By its end every client must have seen
	// the safe point or refuse to read, which they do 100 s after they last saw one; less is for tests. Default 105 s.
	Settle time.Duration
}

// Default is a Config that lacks nothing but PD.
func Default() Config {
	return Config{KeyPrefix: "a", Patience: 10 * time.Second, GC: GC{Enabled: true, Settle: 105 * time.Second}}
}

// Validate returns every fault at once, each with its dotted key.
func (c Config) Validate() error {
	faults := []error{c.TLS.validate()}
	if len(c.PD) == 0 {
		faults = append(faults, errors.New("tikv.pd: at least one address is needed"))
	}
	for i, addr := range c.PD {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			faults = append(faults, fmt.Errorf("tikv.pd[%d]: %w", i, err))
		}
	}
	if c.KeyPrefix == "" || c.KeyPrefix[0] == 0xff {
		faults = append(faults, errors.New("tikv.key_prefix: needs at least one byte, the first below 0xff"))
	}
	if c.Patience <= 0 {
		faults = append(faults, errors.New("tikv.patience: must be more than zero"))
	}
	if c.GC.Settle < 0 {
		faults = append(faults, errors.New("tikv.gc.settle: must not be negative"))
	}
	return errors.Join(faults...)
}

func (t TLS) validate() error {
	var faults []error
	if (t.Cert == "") != (t.Key == "") {
		faults = append(faults, errors.New("tikv.tls: cert and key go together"))
	}
	if t.CA == "" && t != (TLS{}) {
		faults = append(faults, errors.New("tikv.tls.ca: needed with cert and key"))
	}
	return errors.Join(faults...)
}
