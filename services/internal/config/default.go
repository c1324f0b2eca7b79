package config

import "time"

// Default is the configuration of an empty file.
func Default() Config {
	return Config{
		Node: Node{Instance: "ankusa", ShutdownTimeout: 30 * time.Second},
		Log:  Log{Level: "info"},
		HTTP: HTTP{
			Port: 4000, MaxBodyBytes: 8_000_000, Routing: RoutingPath, Prefix: "/webhooks",
			HeaderTimeout: 10 * time.Second, BodyTimeout: time.Minute, MinBodyRate: 1024, IdleTimeout: time.Minute,
			MaxConnections: 16_384,
		},
		RPC:       RPC{MaxConnections: 1024, MaxStreams: 1024},
		Admin:     Admin{Enabled: true, IP: "127.0.0.1", Port: 4002},
		Batcher:   Batcher{MaxBatch: 256, MaxQueue: 10_000, MaxQueueBytes: 256 << 20},
		Dispatch:  defaultDispatch(),
		Store:     defaultStore(),
		Scheduler: defaultScheduler(),
		Runner:    Runner{HealthListen: "127.0.0.1:4022", Slots: 256, Drain: 20 * time.Second},
	}
}

func defaultStore() Store {
	return Store{Type: StoreLocal, Dir: "/var/lib/ankusa", KeyPrefix: "a", Patience: 10 * time.Second, Partitions: 16}
}

func defaultDispatch() Dispatch {
	sinkConcurrency := 8
	return Dispatch{
		Batch: 128, MaxInflight: 4096, MaxInflightBytes: 128 << 20, AttemptTimeout: 30 * time.Second,
		SinkConcurrency: &sinkConcurrency,
		BreakerFailures: 5,
		BreakerOpen:     30 * time.Second,
		BreakerMaxOpen:  5 * time.Minute,
		MaxRetryAfter:   time.Hour,
		Retry: Retry{
			Base: 100 * time.Millisecond, Max: 5 * time.Minute, Jitter: true, MaxElapsed: 24 * time.Hour,
		},
	}
}

func defaultScheduler() Scheduler {
	return Scheduler{
		HealthListen: "127.0.0.1:4021",
		Lease:        5 * time.Second, Renew: 1500 * time.Millisecond,
		RunnerGrace: 15 * time.Second, LeaseMargin: 5 * time.Second,
		History: true, HistoryRetention: 7 * 24 * time.Hour, GC: true,
	}
}
