// Package config reads the one YAML file that every process of a deployment shares. It is strict: an unknown key, a bad
// value, an unresolved variable or the key of a part that does not exist yet is a fault, and all faults of a file are
// reported at once, each with its dotted key.
//
// Every field's comment states its default, its range and its special values; docs/configuration.md is made from them
// by go generate.
package config

import (
	"net/netip"
	"time"
)

//go:generate go run ./configdoc ../../../docs/configuration.md

// Config is the whole file.
type Config struct {
	// The process and its name.
	Node Node `key:"node"`
	// Logging, as JSON lines on standard error.
	Log Log `key:"log"`
	// The public listener that takes hooks (ingest). It answers /health, /ready and /metrics, too, and metrics name the
	// sources: what stands before it on the way from strangers should pass on the hooks' URLs alone.
	HTTP HTTP `key:"http"`
	// The operator's REST API (gateway).
	Admin Admin `key:"admin"`
	// How accepted hooks are gathered into commits (ingest).
	Batcher Batcher `key:"batcher"`
	// How deliveries are claimed, run and retried (scheduler).
	Dispatch Dispatch `key:"dispatch"`
	// The store that holds everything.
	Store Store `key:"store"`
	// gRPC between the processes.
	RPC RPC `key:"rpc"`
	// Where the other processes are.
	Peers Peers `key:"peers"`
	// Leadership, leases and history (scheduler).
	Scheduler Scheduler `key:"scheduler"`
	// The processes that run attempts (sink-runner).
	Runner Runner `key:"runner"`
	// What HTTP sinks may reach, checked when a source is written and again when a connection is opened.
	Egress Egress `key:"egress"`
	// Sources by name. They are created or updated in the store as a scheduler starts, so that the file of the last to
	// start decides; stored ones that are not named here stay. A value that is interpolated in a source is always text.
	// docs/sources.md says what a source holds.
	Sources Sources `key:"sources"`
}

// Node names the process.
type Node struct {
	// Name of the deployment in health answers and metrics. Default "ankusa"; 1 to 64 of [A-Za-z0-9_-].
	Instance string `key:"instance"`
	// How long a stop may take before what still runs is cut off, in milliseconds. Default 30000; 1000 to 600000, and
	// at least runner.drain_ms + 5000.
	ShutdownTimeout time.Duration `key:"shutdown_timeout_ms"`
}

// Log sets what is logged.
type Log struct {
	// Lowest level that is logged. Default "info"; debug, info, warning or error.
	Level string `key:"level" env:"ANKUSA_LOG_LEVEL"`
}

// HTTP is the public listener.
type HTTP struct {
	// Address to bind to. Default "", which is every address of the machine; an IP address.
	IP string `key:"ip"`
	// Port to bind to. Default 4000; 0 to 65535, and 0 takes a free one.
	Port int `key:"port" env:"ANKUSA_HTTP_PORT,PORT"`
	// Most bytes of a request's body; a longer one is answered 413. Default 8000000; 1 to 67108864, and to 25165824
	// where store.type is tikv.
	MaxBodyBytes int `key:"max_body_bytes"`
	// How a URL names its source. Default "path", which is <prefix>/{source_id}; tenant_path is
	// <prefix>/{tenant}/{source}.
	Routing string `key:"routing"`
	// What URLs of hooks begin with. Default "/webhooks"; "/" for none, else segments of [A-Za-z0-9._~-], each with a
	// slash before it.
	Prefix string `key:"prefix"`
	// How long a sender may take for the request line and the headers, in milliseconds. Default 10000; 100 to 600000.
	HeaderTimeout time.Duration `key:"header_timeout_ms"`
	// How long a sender may take for the whole body, in milliseconds. Default 60000; 100 to 3600000.
	BodyTimeout time.Duration `key:"body_timeout_ms"`
	// Lowest rate of a body in bytes per second, judged once it is a few seconds late. Default 1024; 0 to 67108864, and
	// 0 leaves body_timeout_ms as the only bound.
	MinBodyRate int `key:"min_body_rate"`
	// How long a connection may stay open without a request, in milliseconds. Default 60000; 1000 to 3600000.
	IdleTimeout time.Duration `key:"idle_timeout_ms"`
	// Most connections that are open; one more is closed at once. Default 16384; 1 to 1000000.
	MaxConnections int `key:"max_connections"`
}

// Admin is the operator's listener.
type Admin struct {
	// Whether the one-process binary serves the REST API. Default true. The gateway's binary always does.
	Enabled bool `key:"enabled"`
	// Address to bind to. Default "127.0.0.1"; an IP address. There is no authentication yet: do not bind it to an
	// address that strangers reach.
	IP string `key:"ip" env:"ANKUSA_ADMIN_IP"`
	// Port to bind to. Default 4002; 0 to 65535, and 0 takes a free one.
	Port int `key:"port" env:"ANKUSA_ADMIN_PORT"`
	// Names under which requests may ask for the API, beside localhost and loopback addresses, where it is bound to
	// loopback: a request that names another host is refused, since a web page can give a name of its own the address of
	// this machine. Default []; names without a port.
	Hosts []string `key:"hosts"`
	// Whether Go's profiles are served under /debug/pprof/. Default false.
	Pprof bool `key:"pprof"`
}

// Batcher gathers commits.
type Batcher struct {
	// Most hooks of one commit. Default 256; 1 to 4096.
	MaxBatch int `key:"max_batch"`
	// How long a commit waits for company, in milliseconds. Default 0, which commits whatever came while the commit
	// before was running; 0 to 1000.
	MaxDelay time.Duration `key:"max_delay_ms"`
	// Most hooks per partition that wait or are being committed; more are answered 503. Default 10000; max_batch to
	// 1000000.
	MaxQueue int `key:"max_queue"`
	// Most bytes of them per partition. Default 268435456 (256 MiB); http.max_body_bytes to 68719476736.
	MaxQueueBytes int64 `key:"max_queue_bytes"`
}

// Store says where hooks, deliveries and sources live.
type Store struct {
	// The driver. Default "local", an embedded store for one process; tikv for a TiKV cluster.
	Type string `key:"type"`
	// Directory of the local store. Default "/var/lib/ankusa"; an absolute or relative path, created when missing.
	Dir string `key:"dir" env:"ANKUSA_DATA_DIR"`
	// Addresses of the cluster's placement drivers, as host:port. Default []; at least one for tikv, none for local.
	PD []string `key:"pd"`
	// What stands before every key in a TiKV cluster that several users share. None may begin with another's. It is fixed
	// for the life of the data. Default "a"; 1 to 64 of [A-Za-z0-9_-], the default where the store is local.
	KeyPrefix string `key:"key_prefix"`
	// How long a call tries to reach a TiKV cluster that does not answer before it fails. Default 10000; 100 to 60000,
	// the default where the store is local.
	Patience time.Duration `key:"patience_ms"`
	// Partitions of the key space, fixed when the cluster is created: a store of another number is refused. Default 16;
	// 1 to 253.
	Partitions int `key:"partitions"`
	// Certificates towards TiKV. Without them the connection is plaintext.
	TLS TLS `key:"tls"`
}

// TLS names the PEM files of one mutually authenticated connection: all three or none.
type TLS struct {
	// File of the certificate that this process shows. Default "", which is none.
	Cert string `key:"cert"`
	// File of that certificate's private key. Default "", which is none.
	Key string `key:"key"`
	// File of the authorities that sign the other side's certificate. Default "", which is none.
	CA string `key:"ca"`
}

// Enabled says whether the connection is encrypted.
func (t TLS) Enabled() bool { return t != TLS{} }

// RPC is gRPC between the processes.
type RPC struct {
	// Address that ingest and scheduler serve gRPC on, as host:port. Default "", which is 127.0.0.1:4010 for ingest and
	// 127.0.0.1:4011 for the scheduler; port 0 takes a free one. The one-process binary listens only when it is set.
	Listen string `key:"listen" env:"ANKUSA_RPC_LISTEN"`
	// Most connections that are open; one more is closed at once. Default 1024; 1 to 65536.
	MaxConnections int `key:"max_connections"`
	// Most calls of one connection that are under way, streams included; its client holds further ones back. Default 1024;
	// 16 to 65536.
	MaxStreams int `key:"max_streams"`
	// Certificates between the processes; both sides show one. Without them the connections are plaintext.
	TLS TLS `key:"tls"`
}

// Peers says where the other processes serve gRPC.
type Peers struct {
	// Every scheduler, as host:port; the one that leads is found by its health. Default []; at least one for ingest,
	// sink-runner and gateway.
	Scheduler []string `key:"scheduler"`
	// Every ingest, as host:port. Default []; may be empty, for the gateway's readiness alone.
	Ingest []string `key:"ingest"`
}

// Egress bounds what HTTP sinks may reach.
type Egress struct {
	// Whether plain http URLs are allowed. Default false.
	AllowHTTP bool `key:"allow_http"`
	// Networks that are allowed although they are private, as CIDR blocks. Default [].
	AllowCIDRs []netip.Prefix `key:"allow_cidrs"`
	// Networks that are refused, whatever else allows them, as CIDR blocks. Default [].
	DenyCIDRs []netip.Prefix `key:"deny_cidrs"`
	// Ports that are allowed. Default [], which is every port; each 1 to 65535.
	Ports []int `key:"ports"`
}
