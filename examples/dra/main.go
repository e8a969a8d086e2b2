// Command dra is a driver of devices that do not exist: pairs of a GPU and a NIC, each pair under one PCIe root.
//
// The kubelet hears of it, asks it to prepare the claims of pods, and hands its devices to the container runtime by
// CDI: a container finds an environment variable for each of its devices, such as FAKE_GPU_3=gpu-3.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

const (
	driver  = "fake.example.com"
	cdiKind = driver + "/device"
)

// plugin prepares claims; all that a device needs is in the CDI file that was written at start.
type plugin struct{ stop context.CancelCauseFunc }

func (p plugin) PrepareResourceClaims(_ context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	prepared := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		result := kubeletplugin.PrepareResult{}
		for _, allocated := range claim.Status.Allocation.Devices.Results {
			if allocated.Driver != driver {
				continue
			}
			log.Printf("claim %s/%s gets %s", claim.Namespace, claim.Name, allocated.Device)
			result.Devices = append(result.Devices, kubeletplugin.Device{
				Requests:     []string{allocated.Request},
				PoolName:     allocated.Pool,
				DeviceName:   allocated.Device,
				CDIDeviceIDs: []string{cdiKind + "=" + allocated.Device},
			})
		}
		prepared[claim.UID] = result
	}
	return prepared, nil
}

func (p plugin) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	released := map[types.UID]error{}
	for _, claim := range claims {
		released[claim.UID] = nil
	}
	return released, nil
}

func (p plugin) HandleError(_ context.Context, err error, msg string) {
	log.Printf("%s: %v", msg, err)
	if !errors.Is(err, kubeletplugin.ErrRecoverable) {
		p.stop(err)
	}
}

// makeDevices gives so many GPUs and as many NICs.
func makeDevices(pairs int) []resourceapi.Device {
	var devices []resourceapi.Device
	for pair := range pairs {
		root := fmt.Sprintf("pci0000:%02x", 16*pair)
		for _, kind := range []string{"gpu", "nic"} {
			devices = append(devices, resourceapi.Device{
				Name: fmt.Sprintf("%s-%d", kind, pair),
				Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
					"type":                            {StringValue: &kind},
					"resource.kubernetes.io/pcieRoot": {StringValue: &root},
				},
			})
		}
	}
	return devices
}

// writeCDI tells the container runtime what a container with one of the devices gets.
func writeCDI(folder string, devices []resourceapi.Device) error {
	type edits struct {
		Env []string `json:"env"`
	}
	type entry struct {
		Name  string `json:"name"`
		Edits edits  `json:"containerEdits"`
	}
	var entries []entry
	for _, each := range devices {
		name := "FAKE_" + strings.ReplaceAll(strings.ToUpper(each.Name), "-", "_")
		entries = append(entries, entry{each.Name, edits{[]string{name + "=" + each.Name}}})
	}
	content, err := json.Marshal(map[string]any{"cdiVersion": "0.5.0", "kind": cdiKind, "devices": entries})
	if err != nil {
		return err
	}
	file := filepath.Join(folder, driver+".json")
	if err := os.WriteFile(file+".new", content, 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

func run(ctx context.Context, node string, pairs int, cdi, data string) error {
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	devices := makeDevices(pairs)
	if err := os.MkdirAll(data, 0o750); err != nil {
		return err
	}
	if err := writeCDI(cdi, devices); err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	helper, err := kubeletplugin.Start(ctx, plugin{stop},
		kubeletplugin.KubeClient(client), kubeletplugin.NodeName(node), kubeletplugin.DriverName(driver),
		kubeletplugin.PluginDataDirectoryPath(data))
	if err != nil {
		return err
	}
	defer helper.Stop()
	pool := resourceslice.Pool{Slices: []resourceslice.Slice{{Devices: devices}}}
	if err := helper.PublishResources(ctx, resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{node: pool}}); err != nil {
		return err
	}
	log.Printf("node %s has %d devices", node, len(devices))
	<-ctx.Done()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

func main() {
	node := flag.String("node", os.Getenv("NODE_NAME"), "name of the node")
	pairs := flag.Int("pairs", 4, "GPUs of the node, and NICs")
	cdi := flag.String("cdi", "/var/run/cdi", "folder of the container runtime's CDI files")
	data := flag.String("data", "/var/lib/kubelet/plugins/"+driver, "folder of the driver's socket")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := run(ctx, *node, *pairs, *cdi, *data); err != nil {
		log.Fatal(err)
	}
}
