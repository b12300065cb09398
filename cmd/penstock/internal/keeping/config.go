package keeping

import (
	"encoding/json"
	"errors"

	"github.com/penstock/penstock/cmd/penstock/internal/config"
	"github.com/penstock/penstock/cmd/penstock/internal/rules"
	"github.com/penstock/penstock/cmd/penstock/internal/saved"
	"github.com/penstock/penstock/cmd/penstock/internal/spec"
	"github.com/penstock/penstock/relay"
)

// savedConfig is the document of the configuration.
type savedConfig struct {
	Source    string       `json:"source"`
	Text      []byte       `json:"text"`
	Written   []byte       `json:"written"`
	Token     string       `json:"token,omitempty"`
	ReadToken string       `json:"read_token,omitempty"`
	Layers    []spec.Layer `json:"layers,omitempty"`
	// Addresses are those of listeners on any free port, and of those whose host is a name, by listener.
	Addresses map[string]relay.Addr `json:"addresses,omitempty"`
}

// AddressesBefore returns the addresses that listeners on any free port, or at a name, had in the worker before.
func (k *Link) AddressesBefore() map[string]relay.Addr {
	var s savedConfig
	if len(k.lastConfigs) == 0 || json.Unmarshal(k.lastConfigs[0], &s) != nil {
		return nil
	}
	return s.Addresses
}

// LayersBefore returns the texts from registries that the worker before had, by path.
func (k *Link) LayersBefore() map[string]spec.Layer {
	var s savedConfig
	if len(k.lastConfigs) == 0 || json.Unmarshal(k.lastConfigs[0], &s) != nil {
		return nil
	}
	layers := make(map[string]spec.Layer, len(s.Layers))
	for _, l := range s.Layers {
		layers[l.Path] = l
	}
	return layers
}

// SavedConfig returns the last configuration that a worker before this one has applied, or if this version
// cannot read that, the one before.
func (k *Link) SavedConfig() (cfg *spec.Config, err error) {
	err = k.lastConfigErr
	for _, text := range k.lastConfigs {
		if cfg, failed := parseSavedConfig(text); failed == nil {
			return cfg, nil
		} else if err == nil || errors.Is(err, saved.ErrNoDocument) {
			err = failed
		}
	}
	return nil, err
}

// SavedConfigs returns the last configurations that this version can read, the latest first.
func (k *Link) SavedConfigs() (list []*spec.Config) {
	for _, text := range k.lastConfigs {
		if cfg, err := parseSavedConfig(text); err == nil {
			list = append(list, cfg)
		}
	}
	return list
}

func parseSavedConfig(text []byte) (*spec.Config, error) {
	var s savedConfig
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, err
	}
	cfg, err := config.Parse(s.Source, s.Text, rules.Everywhere...)
	if err != nil {
		return nil, err
	}
	cfg.Written, cfg.Admin.Token, cfg.Admin.ReadToken, cfg.Layers = s.Written, s.Token, s.ReadToken, s.Layers
	return cfg, nil
}

// SaveConfig stores a configuration for the next worker, with the addresses that it cannot know otherwise, by listener.
func (k *Link) SaveConfig(cfg *spec.Config, addresses map[string]relay.Addr) error {
	text, err := json.Marshal(savedConfig{cfg.Source, cfg.Text, cfg.Written, cfg.Admin.Token, cfg.Admin.ReadToken, cfg.Layers, addresses})
	if err == nil {
		err = k.config.Write(text)
	}
	return err
}
