// Package otlp sends metrics and log records to an OpenTelemetry collector, as protobuf over HTTP (the OpenTelemetry
// Protocol, OTLP 1.x, https://opentelemetry.io/docs/specs/otlp/). The messages are those of the project itself,
// generated without gRPC; its own SDK with its exporters would make the program 4 MB larger, these messages 0.2.
package otlp
