// Command nvidia-nri-plugin is the NRI plugin of NVIDIA's container toolkit by itself; there it is part of the
// installer. It hands the CDI devices named by a pod's annotations to the container, management devices only to pods
// of the namespaces given as its arguments.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-ctk-installer/container/runtime/nri"
	"github.com/containerd/nri/pkg/api"
	"github.com/sirupsen/logrus"
)

func main() {
	until, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	plugin := nri.NewPlugin(until, logrus.New(), os.Args[1:])
	if err := plugin.Start(until, api.DefaultSocketPath, "10"); err != nil {
		logrus.Fatal(err)
	}
	<-until.Done()
	plugin.Stop()
}
