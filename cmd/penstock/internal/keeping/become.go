package keeping

import (
	"fmt"
	"os"

	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/earlykeeper"
	"github.com/penstock/penstock/cmd/penstock/internal/host"
	"github.com/penstock/penstock/cmd/penstock/internal/logs"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/cmd/penstock/internal/systemd"
)

// passStdin makes a configuration that was read from standard input the standard input of the keeper and
// of its workers, as a file in memory.
func passStdin(source *config.Source) error {
	if source == nil {
		return nil
	}
	for path, text := range source.Passing() {
		if path != config.Stdin {
			return fmt.Errorf("%s cannot be read again, as each worker of a keeper does; allowed: files, folders, and - for standard input", path)
		}
		f, err := host.MemoryFile("stdin")
		if err == nil {
			_, err = f.Write(text)
		}
		if err == nil {
			err = host.UseAsStdin(f)
		}
		if err != nil {
			return fmt.Errorf("pass on standard input: %w", err)
		}
	}
	return nil
}

// Become makes this process the keeper of a worker that runs the same command line. It returns only
// if that fails.
func Become(cfg *spec.Keeper, log *spec.Log, source *config.Source, stderr *os.File) error {
	if err := passStdin(source); err != nil {
		return err
	}
	path, self, err := host.OwnBinary()
	if err != nil {
		return err
	}
	host.RaiseDescriptorLimit() // the keeper holds as many descriptors as the worker has
	s := settingsOf(cfg)
	s.Binary, s.LogFormat = path, log.Format
	if s.LogFormat == "auto" {
		switch s.LogFormat = "json"; {
		case logs.NewScreen(stderr) != nil:
			s.LogFormat = earlykeeper.LogForPerson
		case logs.IsTerminal(stderr):
			s.LogFormat = "text"
		}
	}
	if s.Inherited, err = systemd.Passed(os.Getenv, os.Getpid()); err != nil {
		return err
	}
	args := append([]string{"penstock: keeper"}, os.Args[1:]...)
	return fmt.Errorf("become the keeper: %w", host.Exec(self, args, append(os.Environ(), earlykeeper.Variable+"="+s.Text())))
}

func settingsOf(cfg *spec.Keeper) earlykeeper.Settings {
	return earlykeeper.Settings{Watchdog: cfg.Watchdog, StartTimeout: cfg.StartTimeout, HealthyAfter: cfg.HealthyAfter, MaxRestartDelay: cfg.MaxRestartDelay}
}

// UseTimes tells the keeper the times of a configuration. It began with those of an earlier one.
func (k *Link) UseTimes(cfg *spec.Keeper) error {
	if cfg == nil || !k.Up() {
		return nil
	}
	s := settingsOf(cfg)
	return k.SetTimes(s.Times())
}
