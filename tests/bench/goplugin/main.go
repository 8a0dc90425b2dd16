// A device plugin with nothing in it that the contract does not ask for: what the agent is measured against.
//
// goplugin KUBELET_DIR RESOURCE COUNT registers RESOURCE with COUNT devices and serves them until SIGTERM. Like the
// agent it checks the ids of an Allocate and writes one log line for it; it has no discovery, no health, no report.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

type plugin struct {
	v1beta1.UnimplementedDevicePluginServer
	resource string
	devices  map[string]*v1beta1.Device
}

func (p *plugin) GetDevicePluginOptions(context.Context, *v1beta1.Empty) (*v1beta1.DevicePluginOptions, error) {
	return &v1beta1.DevicePluginOptions{}, nil
}

func (p *plugin) ListAndWatch(_ *v1beta1.Empty, stream grpc.ServerStreamingServer[v1beta1.ListAndWatchResponse]) error {
	answer := &v1beta1.ListAndWatchResponse{}
	for _, device := range p.devices {
		answer.Devices = append(answer.Devices, device)
	}
	if err := stream.Send(answer); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (p *plugin) Allocate(_ context.Context, request *v1beta1.AllocateRequest) (*v1beta1.AllocateResponse, error) {
	answer := &v1beta1.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		for _, id := range container.DevicesIds {
			if p.devices[id] == nil {
				return nil, status.Errorf(codes.InvalidArgument, "%s has no device %s", p.resource, id)
			}
		}
		ids := strings.Join(container.DevicesIds, ",")
		log.Printf("allocated resource=%s ids=%s", p.resource, ids)
		answer.ContainerResponses = append(answer.ContainerResponses,
			&v1beta1.ContainerAllocateResponse{Envs: map[string]string{"DEVICES": ids}})
	}
	return answer, nil
}

func serve(ctx context.Context, directory, resource string, count int) error {
	p := &plugin{resource: resource, devices: make(map[string]*v1beta1.Device, count)}
	for n := range count {
		id := fmt.Sprintf("peer-%d", n)
		p.devices[id] = &v1beta1.Device{ID: id, Health: v1beta1.Healthy}
	}
	syscall.Umask(0o077) // the socket is for the kubelet alone
	endpoint := fmt.Sprintf("goplugin-%d.sock", os.Getpid())
	listener, err := net.Listen("unix", filepath.Join(directory, endpoint))
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	v1beta1.RegisterDevicePluginServer(server, p)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	defer server.Stop()

	kubelet := "unix:" + filepath.Join(directory, "kubelet.sock")
	connection, err := grpc.NewClient(kubelet, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	_, err = v1beta1.NewRegistrationClient(connection).Register(ctx, &v1beta1.RegisterRequest{
		Version: v1beta1.Version, Endpoint: endpoint, ResourceName: resource,
	})
	if err != nil {
		return fmt.Errorf("register: %w", err)
	}
	select {
	case err = <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

func main() {
	log.SetFlags(log.LstdFlags | log.Lmicroseconds)
	if len(os.Args) != 4 {
		log.Fatal("usage: goplugin KUBELET_DIR RESOURCE COUNT")
	}
	count, err := strconv.Atoi(os.Args[3])
	if err != nil {
		log.Fatalf("COUNT: %v", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := serve(ctx, os.Args[1], os.Args[2], count); err != nil {
		log.Fatal(err)
	}
}
