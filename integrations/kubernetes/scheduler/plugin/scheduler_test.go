package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/scheduler"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/profile"
)

// A whole kube-scheduler with the plug-in, before an API that is only in memory: Kubernetes' own stand-in for it.

const configuration = `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - schedulerName: default-scheduler
    plugins: {multiPoint: {enabled: [{name: Cotenant, weight: 5}]}}
    pluginConfig:
      - name: Cotenant
        args: {url: "%s", timeout: %s, rest: 1m%s}
`

// newPlugin makes the plug-in; a test may change what it is made of.
var newPlugin = New

type cluster struct {
	*fake.Clientset
	t *testing.T
}

func run(t *testing.T, address, timeout string, objects ...runtime.Object) *cluster {
	t.Helper()
	token := ""
	if file := os.Getenv("COTENANT_TEST_TOKEN_FILE"); file != "" {
		token = ", tokenFile: " + file
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	file := filepath.Join(t.TempDir(), "scheduler.yaml")
	write(t, file, fmt.Sprintf(configuration, address, timeout, token))
	read, err := options.LoadConfigFromFile(klog.Background(), file)
	if err != nil {
		t.Fatal(err)
	}
	client := fake.NewClientset(objects...)
	client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "binding" {
			return false, nil, nil
		}
		binding := action.(clienttesting.CreateAction).GetObject().(*v1.Binding)
		found, err := client.Tracker().Get(action.GetResource(), action.GetNamespace(), binding.Name)
		if err != nil {
			return true, nil, err
		}
		bound := found.(*v1.Pod).DeepCopy()
		bound.Spec.NodeName = binding.Target.Name
		return true, binding, client.Tracker().Update(action.GetResource(), bound, action.GetNamespace())
	})
	factory := informers.NewSharedInformerFactory(client, 0)
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		t.Fatal(err)
	}
	made, err := scheduler.New(ctx, client, factory, nil, profile.NewRecorderFactory(broadcaster),
		scheduler.WithProfiles(read.Profiles...),
		scheduler.WithFrameworkOutOfTreeRegistry(frameworkruntime.Registry{Name: newPlugin}),
		scheduler.WithPodMaxBackoffSeconds(1))
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	if err := made.WaitForHandlersSync(ctx); err != nil {
		t.Fatal(err)
	}
	go made.Run(ctx)
	return &cluster{client, t}
}

func (c *cluster) create(one *v1.Pod) {
	c.t.Helper()
	one.Spec.SchedulerName = v1.DefaultSchedulerName
	if _, err := c.CoreV1().Pods(one.Namespace).Create(context.Background(), one, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// get a pod, nil = it is gone.
func (c *cluster) get(uid string) *v1.Pod {
	found, err := c.CoreV1().Pods("prod").Get(context.Background(), "web-"+uid, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return found
}

// bound waits for where it goes.
func (c *cluster) bound(uid string) string {
	c.t.Helper()
	eventually(c.t, func() bool { one := c.get(uid); return one != nil && one.Spec.NodeName != "" })
	return c.get(uid).Spec.NodeName
}

// told waits for an event of the pod with these words.
func (c *cluster) told(uid, words string) {
	c.t.Helper()
	eventually(c.t, func() bool {
		found, err := c.EventsV1().Events("prod").List(context.Background(), metav1.ListOptions{})
		if err != nil {
			c.t.Fatal(err)
		}
		for i := range found.Items {
			if found.Items[i].Regarding.Name == "web-"+uid && strings.Contains(found.Items[i].Note, words) {
				return true
			}
		}
		return false
	})
}

func machine(name string) *v1.Node {
	size := v1.ResourceList{v1.ResourceCPU: resource.MustParse("64"), v1.ResourceMemory: resource.MustParse("256Gi"), v1.ResourcePods: resource.MustParse("250")}
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1.NodeStatus{Capacity: size, Allocatable: size}}
}

func about(asked []question) int {
	count := 0
	for _, one := range asked {
		if one.Pod != nil && !one.Hold {
			count++
		}
	}
	return count
}

func TestASchedulerAsksOnceForEachPodAndDoesAsItIsTold(t *testing.T) {
	there := serve(t, text(`{"FailedNodes": {"h1": "db-1 would fall below its limit"}, "FailedAndUnresolvableNodes": {}, "Scores": {"h2": 10, "h3": 100}, "Error": ""}`))
	c := run(t, there.URL, "20s", machine("h1"), machine("h2"), machine("h3"))
	for i := range 5 {
		c.create(guest(fmt.Sprint(i)))
		c.create(pod(fmt.Sprint("plain-", i), nil))
	}
	for i := range 5 {
		if node := c.bound(fmt.Sprint(i)); node != "h3" {
			t.Errorf("pod %d went to %s", i, node)
		}
		c.bound(fmt.Sprint("plain-", i))
	}
	told := map[string]string{}
	eventually(t, func() bool {
		for _, one := range there.questions() {
			for _, placed := range one.Placed {
				told[placed.Pod.Metadata.Name] = placed.NodeName
			}
			if one.Hold { // somebody else may have begun at the same time
				told[one.Pod.Metadata.Name] = one.NodeNames[0]
			}
		}
		return len(told) == 5
	})
	if asked := about(there.questions()); asked != 5 {
		t.Errorf("%d questions about 5 pods that ask and 5 that do not", asked)
	}
}

func TestASchedulerTellsOfNoPodThatIsGone(t *testing.T) {
	there := serve(t, text(`{"FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "Scores": {"h1": 100}, "Error": ""}`))
	newPlugin = func(ctx context.Context, given runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		one, err := New(ctx, given, handle)
		if err == nil {
			one.(*Plugin).soon, one.(*Plugin).tables.watch = time.Hour, 0
		}
		return one, err
	}
	t.Cleanup(func() { newPlugin = New })
	c := run(t, there.URL, "20s", machine("h1"))
	c.create(guest("a"))
	c.bound("a")
	c.create(guest("b"))
	c.bound("b")
	if err := c.CoreV1().Pods("prod").Delete(context.Background(), "web-b", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second) // for the scheduler to hear of it
	c.create(guest("c"))
	c.bound("c")
	told := map[string]bool{}
	for _, one := range there.questions() {
		for _, placed := range one.Placed {
			told[placed.Pod.Metadata.Uid] = true
		}
	}
	if !told["a"] || told["b"] {
		t.Errorf("told of %v", told)
	}
}

func TestASchedulerGoesOnWhileTheServiceHangs(t *testing.T) {
	there := serve(t, func(http.ResponseWriter, question) { time.Sleep(3 * time.Second) })
	c := run(t, there.URL, "100ms", machine("h1"), machine("h2"))
	for i := range 10 {
		c.create(guest(fmt.Sprint(i)))
	}
	for i := range 10 {
		c.bound(fmt.Sprint(i))
	}
	if asked := len(there.questions()); asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}

func TestAWrongAnnotationIsAnEventUntilItIsMended(t *testing.T) {
	there := serve(t, func(w http.ResponseWriter, asked question) {
		found := answer{FailedNodes: map[string]string{}, FailedAndUnresolvableNodes: map[string]string{}, Scores: map[string]int64{}}
		if asked.Pod != nil && asked.Pod.Metadata.Annotations["cotenant.io/worklod"] != "" {
			found.Error = "cotenant.io/worklod is not known; is cotenant.io/workload meant?"
		}
		_ = json.NewEncoder(w).Encode(found)
	})
	c := run(t, there.URL, "20s", machine("h1"))
	c.create(pod("a", map[string]string{"cotenant.io/worklod": "batch"}))
	c.told("a", "is cotenant.io/workload meant?")
	mended := c.get("a")
	if mended.Spec.NodeName != "" {
		t.Fatalf("it went to %s all the same", mended.Spec.NodeName)
	}
	mended.Annotations = map[string]string{"cotenant.io/workload": "batch"}
	mended.ResourceVersion = "2" // as the API counts, which is in memory only here; of equal ones nothing is looked at
	if _, err := c.CoreV1().Pods("prod").Update(context.Background(), mended, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.bound("a")
}

// A node is full of a pod that may be evicted. `helps` is whether Cotenant would then let the newcomer in.
func preempting(t *testing.T, helps bool) (*cluster, *service) {
	t.Helper()
	low, high, priority := pod("low", nil), guest("high"), int32(1000)
	for _, one := range []*v1.Pod{low, high} {
		one.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("40")
	}
	low.Spec.NodeName, low.Spec.SchedulerName, high.Spec.Priority = "h1", v1.DefaultSchedulerName, &priority
	var gone atomic.Bool
	there := serve(t, func(w http.ResponseWriter, asked question) {
		if helps && len(asked.Without) > 0 {
			gone.Store(true)
		}
		found := answer{FailedNodes: map[string]string{}, FailedAndUnresolvableNodes: map[string]string{}, Scores: map[string]int64{}}
		for _, node := range asked.NodeNames {
			if gone.Load() {
				found.Scores[node] = 90
			} else {
				found.FailedNodes[node] = "db-1 would fall below its limit"
			}
		}
		_ = json.NewEncoder(w).Encode(found)
	})
	c := run(t, there.URL, "20s", machine("h1"), low)
	c.create(high)
	return c, there
}

func TestNobodyIsEvictedForNothing(t *testing.T) {
	c, there := preempting(t, false)
	c.told("high", "db-1 would fall below its limit")
	if low := c.get("low"); low == nil || low.DeletionTimestamp != nil {
		t.Error("the pod was evicted, and the newcomer is still refused")
	}
	if asked := there.questions(); len(asked[len(asked)-1].Without) != 1 {
		t.Errorf("it was not asked what would be without: %+v", asked)
	}
}

func TestAPodIsEvictedWhereThatLetsTheNewcomerIn(t *testing.T) {
	c, _ := preempting(t, true)
	if node := c.bound("high"); node != "h1" || c.get("low") != nil {
		t.Errorf("on %s beside %v", node, c.get("low"))
	}
}

// With COTENANT_TEST_URL, a real service that has twelve nodes of one CPU. No sync reports to it what was bound.
func TestABurstSpreadsOverTheNodesOfARealService(t *testing.T) {
	address := os.Getenv("COTENANT_TEST_URL")
	if address == "" {
		t.Skip("COTENANT_TEST_URL is the address of no service: tests/integrations starts one")
	}
	var machines []runtime.Object
	for i := range 12 {
		machines = append(machines, machine(fmt.Sprintf("n%02d", i)))
	}
	c := run(t, address, "20s", machines...)
	began := time.Now()
	for i := range 12 {
		c.create(pod(fmt.Sprint("busy-", i), map[string]string{"cotenant.io/workload": "busy", "cotenant.io/vcpus": "1"}))
	}
	where := map[string]int{}
	for i := range 12 {
		where[c.bound(fmt.Sprint("busy-", i))]++
	}
	t.Logf("12 pods in %s: %v", time.Since(began).Round(time.Millisecond), where)
	if len(where) != 12 {
		t.Errorf("on %d nodes", len(where))
	}
}
