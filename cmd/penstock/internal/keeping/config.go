package keeping

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"

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
	// Policy is the sum of the policy of the worker that ran this.
	Policy string `json:"policy,omitempty"`
	// Addresses are those of listeners on any free port, and of those whose host is a name, by listener.
	Addresses map[string]relay.Addr `json:"addresses,omitempty"`
}

// SetPolicy tells the keeper what this process may ask for, as keeper.Worker.SetPolicy. Configurations are saved with it from then on.
func (k *Link) SetPolicy(text string) error {
	k.policySum = policySum(cmp.Or(text, k.Policy()))
	return k.Worker.SetPolicy(text)
}

func policySum(policy string) string {
	sum := sha256.Sum256([]byte(policy))
	return hex.EncodeToString(sum[:8])
}

// runBefore returns saved configurations in another order: first those that ran with a policy. A worker saves its configuration a moment
// before it is ready, and the keeper knows the policy of the last worker that was: if it dies in between, its configuration is the newest
// one, and may have members to which the next worker, which enters the sandbox of the one before it, cannot connect.
func runBefore(configs [][]byte, policy string) [][]byte {
	sum := policySum(policy)
	ran := func(text []byte) bool {
		var s struct{ Policy string }
		return json.Unmarshal(text, &s) == nil && s.Policy == sum
	}
	if i := slices.IndexFunc(configs, ran); i > 0 {
		return append([][]byte{configs[i]}, slices.Delete(slices.Clone(configs), i, i+1)...)
	}
	return configs
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

// SavedConfig returns the configuration of the worker before this one: the last that it has applied, or if this version
// cannot read that, another one.
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

// SavedConfigs returns the last configurations that this version can read, in the same order.
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
	text, err := json.Marshal(savedConfig{cfg.Source, cfg.Text, cfg.Written, cfg.Admin.Token, cfg.Admin.ReadToken, cfg.Layers, k.policySum, addresses})
	if err == nil {
		err = k.config.Write(text)
	}
	return err
}
