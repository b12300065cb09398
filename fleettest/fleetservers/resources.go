package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/structpb"
)

// parseResources reads the file of resources: those of Envoy by type, and Penstock's own by name.
func parseResources(text []byte) (map[resource.Type][]types.Resource, map[string]types.Resource, error) {
	var file struct{ Resources []json.RawMessage }
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, nil, err
	}
	byType, own := map[resource.Type][]types.Resource{}, map[string]types.Resource{}
	for i, raw := range file.Resources {
		var head struct {
			Type  string `json:"@type"`
			Name  string
			Text  string
			Value map[string]any
		}
		if err := json.Unmarshal(raw, &head); err != nil {
			return nil, nil, fmt.Errorf("resources[%d]: %w", i, err)
		}
		if head.Type == configurationType {
			r, err := configuration(head.Text, head.Value)
			if err != nil {
				return nil, nil, fmt.Errorf("resources[%d]: %w", i, err)
			}
			own[head.Name] = r
			continue
		}
		var any anypb.Any
		if err := protojson.Unmarshal(raw, &any); err != nil {
			return nil, nil, fmt.Errorf("resources[%d]: %w", i, err)
		}
		m, err := any.UnmarshalNew()
		if err == nil {
			err = addResource(byType, any.GetTypeUrl(), m)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("resources[%d]: %w", i, err)
		}
	}
	return byType, own, nil
}

// configuration returns a message with the bytes of a penstock.v1.Configuration: field 1 is a text, field 2 a
// google.protobuf.Struct. A control plane that has the .proto file uses the generated type instead.
func configuration(text string, value map[string]any) (proto.Message, error) {
	var b []byte
	if text != "" {
		b = protowire.AppendString(protowire.AppendTag(b, 1, protowire.BytesType), text)
	}
	if value != nil {
		s, err := structpb.NewStruct(value)
		if err != nil {
			return nil, err
		}
		inner, err := proto.MarshalOptions{Deterministic: true}.Marshal(s)
		if err != nil {
			return nil, err
		}
		b = protowire.AppendBytes(protowire.AppendTag(b, 2, protowire.BytesType), inner)
	}
	if b == nil {
		return nil, errors.New("neither text nor value")
	}
	m := &emptypb.Empty{}
	m.ProtoReflect().SetUnknown(b)
	return m, nil
}

func nodeText(n *core.Node) json.RawMessage {
	if n == nil {
		return nil
	}
	text, _ := protojson.Marshal(n)
	return text
}

// requireToken refuses streams without a bearer token.
func requireToken(token string) grpc.StreamServerInterceptor {
	return func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		if !hasToken(s.Context(), token) {
			return status.Error(codes.Unauthenticated, "a valid token is required")
		}
		return next(srv, s)
	}
}

func hasToken(ctx context.Context, token string) bool {
	md, _ := metadata.FromIncomingContext(ctx)
	for _, v := range md.Get("authorization") {
		if v == "Bearer "+token {
			return true
		}
	}
	return false
}
