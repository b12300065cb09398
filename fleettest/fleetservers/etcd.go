package main

import (
	"errors"
	"flag"
	"net/url"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
)

// runEtcd runs one etcd server, a cluster of its own.
func runEtcd(args []string) error {
	set := flag.NewFlagSet("etcd", flag.ContinueOnError)
	cfg := embed.NewConfig()
	set.StringVar(&cfg.Dir, "data", "", "data `folder`, required")
	listen := set.String("listen", "http://127.0.0.1:0", "client `URL`; port 0: any free one")
	ports := set.String("ports", "", portsUsage)
	cert := set.String("cert", "", "certificate `file` of an https URL")
	key := set.String("key", "", "its key `file`")
	ca := set.String("ca", "", "`file` of the authority that clients' certificates must be of; empty: clients need none")
	set.StringVar(&cfg.AutoCompactionMode, "compaction-mode", "periodic", "auto-compaction `mode`")
	set.StringVar(&cfg.AutoCompactionRetention, "compaction", "0", "auto-compaction retention")
	set.UintVar(&cfg.MaxRequestBytes, "max-request-bytes", cfg.MaxRequestBytes, "maximum `size` of a request")
	set.Int64Var(&cfg.QuotaBackendBytes, "quota", 0, "quota of the data in `bytes`")
	set.UintVar(&cfg.AuthTokenTTL, "token-ttl", cfg.AuthTokenTTL, "`seconds` until a token that is not used expires")
	set.DurationVar(&cfg.WatchProgressNotifyInterval, "progress", cfg.WatchProgressNotifyInterval, "interval of progress notifications")
	set.StringVar(&cfg.LogLevel, "log-level", "error", "`level` of the log")
	if err := set.Parse(args); err != nil {
		return err
	}
	free := portSource{given: *ports}
	if cfg.Dir == "" {
		return errors.New("-data is required")
	}
	cfg.ClientTLSInfo = transport.TLSInfo{CertFile: *cert, KeyFile: *key, TrustedCAFile: *ca, ClientCertAuth: *ca != ""}
	cfg.UnsafeNoFsync = true // tests kill processes, not machines
	cfg.BcryptCost = 4       // of made-up passwords
	cfg.TickMs, cfg.ElectionMs = 50, 500
	var u *url.URL
	var e *embed.Etcd
	err := whileInUse(func() (err error) {
		if u, err = free.url(*listen); err != nil {
			return err
		}
		peers, err := free.url("http://127.0.0.1:0") // nobody uses it: there is one server
		if err != nil {
			return err
		}
		cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{*u}, []url.URL{*u}
		cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{*peers}, []url.URL{*peers}
		cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
		e, err = embed.StartEtcd(cfg)
		return err
	})
	if err != nil {
		return err
	}
	select {
	case <-e.Server.ReadyNotify():
		ready(u.String())
	case err := <-e.Err():
		return err
	case <-time.After(time.Minute):
		return errors.New("not ready after a minute")
	}
	return <-e.Err()
}
