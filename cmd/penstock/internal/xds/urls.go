package xds

// Types, in the order in which Envoy asks for them: what refers comes after what it refers to.
const (
	clusterURL   = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	endpointsURL = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	listenerURL  = "type.googleapis.com/envoy.config.listener.v3.Listener"
	// ConfigurationURL is the type of Penstock's own resource; see docs/xds.md.
	ConfigurationURL = "type.googleapis.com/penstock.v1.Configuration"
)
