//go:build linux

package peer

import (
	"fmt"
	"path/filepath"
	"strconv"
)

func penstock(bin string) Peer {
	return Peer{
		Name: "penstock",
		Note: "this checkout",
		UDP:  true,
		Ask:  []string{bin, "version"},
		plan: func(s Setup) Plan {
			scheme := "tcp://"
			if s.UDP {
				scheme = "udp://"
			}
			return Plan{Argv: []string{bin, "relay", "--loops", strconv.Itoa(s.Loops), scheme + s.Listen, scheme + s.Upstream}}
		},
	}
}

// haproxy with splice forced gets pipes of 1 MiB, without which a splice
// costs it more than a copy on bulk.
func haproxy(name, note string, forced bool) Peer {
	const common = `global
    nbthread %d
    maxconn %d
    maxpipes 64
    tune.pipesize 1048576
defaults
    mode tcp
    timeout connect 5s
    timeout client 120s
    timeout server 120s
%slisten relay
    bind %s
    server upstream %s
`
	option := "    option splice-auto\n"
	if forced {
		option = "    option splice-request\n    option splice-response\n"
	}
	return Peer{
		Name: name,
		Note: note,
		Ask:  []string{"haproxy", "-v"},
		plan: func(s Setup) Plan {
			file := filepath.Join(s.Dir, name+".cfg")
			return Plan{
				Argv:   []string{"haproxy", "-db", "-q", "-f", file},
				File:   file,
				Config: fmt.Sprintf(common, s.Loops, (s.Files-300)/2, option, s.Listen, s.Upstream),
			}
		},
	}
}

// nginx takes udp as the options of a UDP listener beside the usual ones.
func nginx(name, note, udp string) Peer {
	const config = `load_module /usr/lib/nginx/modules/ngx_stream_module.so;
daemon off;
user root;
worker_processes %d;
worker_rlimit_nofile %d;
pid %s;
error_log stderr crit;
events {
    worker_connections %d;
}
stream {
    proxy_timeout 120s;
    proxy_half_close on;
    proxy_buffer_size 64k;
    server {
        listen %s reuseport%s;
        proxy_pass %s;
    }
}
`
	return Peer{
		Name: name,
		Note: note,
		UDP:  true,
		Ask:  []string{"nginx", "-v"},
		plan: func(s Setup) Plan {
			file := filepath.Join(s.Dir, "nginx.conf")
			options := " backlog=4096"
			if s.UDP {
				options = " udp" + udp
			}
			return Plan{
				Argv:   []string{"nginx", "-e", "stderr", "-c", file},
				File:   file,
				Config: fmt.Sprintf(config, s.Loops, s.Files, filepath.Join(s.Dir, "nginx.pid"), s.Files, s.Listen, options, s.Upstream),
			}
		},
	}
}

func goCopy(self string) Peer {
	return Peer{
		Name: "gocopy",
		Note: "Go io.Copy each way",
		// Two sockets, and a pipe each way that io.Copy takes before there
		// is anything to carry.
		FilesEach: 6,
		Ask:       []string{"go", "version"},
		plan: func(s Setup) Plan {
			return Plan{Argv: []string{self, "gocopy", s.Listen, s.Upstream}}
		},
	}
}
