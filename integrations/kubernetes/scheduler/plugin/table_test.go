package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// crowd has nodes that pods come to, as kube-scheduler's snapshot has them.
type crowd struct {
	t     *testing.T
	names []string
	pods  map[string][]*v1.Pod
}

func (c *crowd) nodes() []fwk.NodeInfo {
	found := nodes(c.names...)
	for _, node := range found {
		for _, one := range c.pods[node.Node().Name] {
			node.(*framework.NodeInfo).AddPodInfo(podInfo(c.t, one))
		}
	}
	return found
}

// place is a pod's whole cycle by scores alone; of equal ones the first node. Empty = nowhere.
func (c *crowd) place(p *Plugin, one *v1.Pod) string {
	c.t.Helper()
	named := c.nodes()
	state, refused, scores := cycle(p, one, named)
	best := ""
	for _, name := range c.names {
		if refused[name] == nil && (best == "" || scores[name] > scores[best]) {
			best = name
		}
	}
	if best != "" && p.Reserve(context.Background(), state, one, best).IsSuccess() {
		c.pods[best] = append(c.pods[best], one)
		return best
	}
	return ""
}

// each node loses `step` points with each pod that it is told of, and has room for `most`; 0 = for any number.
func sinking(t *testing.T, step, most int) (*service, *crowd, *Plugin) {
	t.Helper()
	c := &crowd{t, nil, map[string][]*v1.Pod{}}
	for i := range 10 {
		c.names = append(c.names, fmt.Sprintf("h%d", i))
	}
	told := map[string]int{}
	there := serve(t, func(w http.ResponseWriter, asked question) {
		found := answer{FailedNodes: map[string]string{}, FailedAndUnresolvableNodes: map[string]string{}, Scores: map[string]int64{}, PerNode: true}
		for _, one := range asked.Placed {
			told[one.NodeName]++
		}
		if asked.Hold {
			defer func() { told[asked.NodeNames[0]]++ }()
		}
		for _, name := range asked.NodeNames {
			if most > 0 && told[name] >= most {
				found.FailedNodes[name] = "full"
			} else {
				found.Scores[name] = int64(max(maxNodeScore-step*told[name], 0))
			}
		}
		_ = json.NewEncoder(w).Encode(found)
	})
	p := asking(t, there.URL)
	p.soon = time.Hour
	return there, c, p
}

func asked(there *service) int { return about(there.questions()) }

func TestPodsAlikeShareAnAnswerUntilTheNodesThatDidNotChangeAreNoLongerTheBest(t *testing.T) {
	there, c, p := sinking(t, 10, 0)
	where := map[string]int{}
	for i := range 30 {
		where[c.place(p, guest(fmt.Sprint(i)))]++
	}
	for _, name := range c.names {
		if where[name] != 3 {
			t.Errorf("%d pods on %s: %v", where[name], name, where)
		}
	}
	if asked(there) != 3 {
		t.Errorf("%d questions about 30 pods in three rounds over ten nodes", asked(there))
	}
	if second := there.questions()[1]; len(second.NodeNames) != 10 || len(second.Placed) != 10 {
		t.Errorf("%d nodes were asked about, %d pods told", len(second.NodeNames), len(second.Placed))
	}
}

// As if every pod were asked about alone, but for what is alike: nobody is put beyond that behind the best node.
func TestSharedAnswersChooseNodesAsGoodAsIfEveryPodWereAskedAbout(t *testing.T) {
	for _, step := range []int{1, 3, 10, 40} {
		_, c, p := sinking(t, step, 0)
		for i := range 37 {
			least := len(c.pods[c.names[0]])
			for _, name := range c.names {
				least = min(least, len(c.pods[name]))
			}
			chosen := c.place(p, guest(fmt.Sprint(i)))
			worth := func(there int) int { return max(maxNodeScore-step*there, 0) }
			if lost := worth(least) - worth(len(c.pods[chosen])-1); lost > alike {
				t.Errorf("step %d: pod %d lost %d points on %s", step, i, lost, chosen)
			}
		}
	}
}

func TestANodeThatFilledUpMeanwhileTakesNobody(t *testing.T) {
	_, c, p := sinking(t, 0, 1)
	for i := range 13 {
		if where := c.place(p, guest(fmt.Sprint(i))); (where == "") != (i >= 10) {
			t.Errorf("pod %d is on %q", i, where)
		}
	}
	for name, there := range c.pods {
		if len(there) > 1 {
			t.Errorf("%d pods on %s", len(there), name)
		}
	}
}

func TestPodsOfDifferentKindsSeeEachOthersNodesAsChanged(t *testing.T) {
	there, c, p := sinking(t, 10, 0)
	other := func(uid string) *v1.Pod { return pod(uid, map[string]string{"cotenant.io/workload": "web"}) }
	for i := range 5 {
		c.place(p, guest(fmt.Sprint("a", i)))
		c.place(p, other(fmt.Sprint("b", i)))
	}
	if asked(there) != 2 || len(c.pods) != 10 {
		t.Errorf("%d questions, pods on %d nodes", asked(there), len(c.pods))
	}
}

func TestARefusedNodeThatAPodLeftIsAskedAboutAgain(t *testing.T) {
	full := true
	there := serve(t, func(w http.ResponseWriter, asked question) {
		found := answer{FailedNodes: map[string]string{}, FailedAndUnresolvableNodes: map[string]string{}, Scores: map[string]int64{}, PerNode: true}
		for _, name := range asked.NodeNames {
			if name == "h1" && full {
				found.FailedNodes[name] = "full"
			} else {
				found.Scores[name] = 100
			}
		}
		_ = json.NewEncoder(w).Encode(found)
	})
	p := asking(t, there.URL)
	c := &crowd{t, []string{"h1", "h2", "h3"}, map[string][]*v1.Pod{"h1": {pod("old", nil)}}}
	if _, refused, _ := cycle(p, guest("a"), c.nodes()); refused["h1"] == nil {
		t.Error("h1 is not full")
	}
	c.pods["h1"], full = nil, false
	if _, refused, _ := cycle(p, guest("b"), c.nodes()); len(refused) > 0 {
		t.Errorf("refused %v", refused)
	}
	if last := there.questions()[len(there.questions())-1]; !slices.Equal(last.NodeNames, []string{"h1"}) {
		t.Errorf("asked about %v", last.NodeNames)
	}
}

func TestAnswersThatDependOnTheOtherNodesAreForOnePodOnly(t *testing.T) {
	there := serve(t, text(freely)) // without PerNode, as an older service answers
	p := asking(t, there.URL)
	for i := range 3 {
		cycle(p, guest(fmt.Sprint(i)), nodes("h1", "h2"))
	}
	if asked(there) != 3 {
		t.Errorf("%d questions about 3 pods", asked(there))
	}
}

func TestWhileSomebodyElsePlacesEveryPodIsAskedAbout(t *testing.T) {
	there, c, p := sinking(t, 10, 0)
	c.place(p, guest("a"))
	c.place(p, guest("b"))
	if asked(there) != 1 {
		t.Fatalf("%d questions", asked(there))
	}
	alone := there.answer
	there.answers(func(w http.ResponseWriter, _ question) {
		_, _ = w.Write([]byte(`{"FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "Scores": {}, "Error": "", "PerNode": false}`))
	})
	p.tellNow() // the answer to what is told without a pod says so, too
	there.answers(alone)
	c.place(p, guest("c"))
	if asked(there) != 2 {
		t.Errorf("%d questions", asked(there))
	}
}

// The service would refuse the node for victims that only kube-scheduler knows to be gone.
func TestANodeThatVictimsHaveLeftIsNotAskedAboutAgain(t *testing.T) {
	there := serve(t, func(w http.ResponseWriter, asked question) {
		found := answer{FailedNodes: map[string]string{}, FailedAndUnresolvableNodes: map[string]string{}, Scores: map[string]int64{}}
		if len(asked.Without) > 0 {
			found.Scores["h1"] = 80
		} else {
			found.FailedNodes["h1"] = "full"
		}
		_ = json.NewEncoder(w).Encode(found)
	})
	p := asking(t, there.URL)
	p.tables.watch = time.Hour
	p.victims.remember("a", "h1", map[types.UID]struct{}{"low": {}})
	state, refused, _ := cycle(p, guest("a"), nodes("h1"))
	if said := p.Reserve(context.Background(), state, guest("a"), "h1"); len(refused) > 0 || !said.IsSuccess() {
		t.Errorf("refused %v, %v", refused, said)
	}
	if p.ledger.empty() {
		t.Error("nobody is told of it")
	}
}

func TestABurstBeginsWatchfully(t *testing.T) {
	there, c, p := sinking(t, 10, 0)
	p.tables.watch = 100 * time.Millisecond
	c.place(p, guest("a"))
	if asked := there.questions(); len(asked) != 2 || !asked[1].Hold {
		t.Errorf("the first pod's node was not held: %+v", asked)
	}
	time.Sleep(110 * time.Millisecond)
	c.place(p, guest("b"))
	c.place(p, guest("c"))
	if asked := there.questions(); len(asked) != 3 && len(asked) != 2 {
		t.Errorf("%d questions", len(asked))
	}
	p.tables.last = p.tables.last.Add(-burst)
	c.place(p, guest("d"))
	if asked := there.questions(); !asked[len(asked)-1].Hold {
		t.Error("the next burst does not begin so")
	}
}

// Between a question and the next one somebody else may choose the same node.
func TestWhereOthersPlaceTheChosenNodeIsHeldAtOnceOrThePodIsTriedAgain(t *testing.T) {
	worth := int64(100)
	there := serve(t, func(w http.ResponseWriter, asked question) {
		found := answer{FailedNodes: map[string]string{}, FailedAndUnresolvableNodes: map[string]string{}, Scores: map[string]int64{}, Others: true}
		for _, name := range asked.NodeNames {
			found.Scores[name] = worth
		}
		_ = json.NewEncoder(w).Encode(found)
	})
	p, ctx := asking(t, there.URL), context.Background()
	p.soon = time.Hour
	state, _, _ := cycle(p, guest("a"), nodes("h1", "h2"))
	if said := p.Reserve(ctx, state, guest("a"), "h2"); !said.IsSuccess() {
		t.Errorf("%v", said)
	}
	if last := there.questions()[1]; !last.Hold || !slices.Equal(last.NodeNames, []string{"h2"}) || !p.ledger.empty() {
		t.Errorf("%+v", last)
	}
	state, _, _ = cycle(p, guest("b"), nodes("h1", "h2"))
	worth = 60
	if said := p.Reserve(ctx, state, guest("b"), "h2"); said.Code() != fwk.Error {
		t.Errorf("%v", said)
	}
	if len(p.ledger.released) != 1 || p.ledger.released[0].pod.Metadata.Uid != "b" {
		t.Errorf("it is still held: %+v", p.ledger.released)
	}
}

func TestAnAnswerStandsForAShortTimeOnly(t *testing.T) {
	there, c, p := sinking(t, 10, 0)
	c.place(p, guest("a"))
	for _, one := range p.tables.of {
		one.at = one.at.Add(-lasting)
	}
	c.place(p, guest("b"))
	if asked(there) != 2 || len(there.questions()[1].NodeNames) != 10 {
		t.Errorf("%d questions", asked(there))
	}
}

// Where others weigh more, as to fill nodes, the node that just changed is chosen: then its score must be right.
func TestWhereOtherPlugInsChooseNodesThatChangedTheseAreAskedAboutFromThenOn(t *testing.T) {
	there, c, p := sinking(t, 10, 0)
	for i := range 4 {
		one, named := guest(fmt.Sprint(i)), c.nodes()
		state, _, scores := cycle(p, one, named)
		if i > 1 && scores["h0"] != int64(100-10*i) {
			t.Errorf("pod %d: %v", i, scores)
		}
		p.Reserve(context.Background(), state, one, "h0")
		c.pods["h0"] = append(c.pods["h0"], one)
	}
	if asked(there) != 4 { // about all, about h0 when it was chosen, and then with each pod
		t.Errorf("%d questions", asked(there))
	}
}

func TestGuestsOfKubeVirtAndPodsThatSayOtherThingsAreNotAlike(t *testing.T) {
	one, two, three, four := slim(guest("a")), slim(guest("b")), slim(guest("c")), slim(guest("d"))
	if kindOf(one) != kindOf(two) || kindOf(one) == "" {
		t.Error("they differ in their names only")
	}
	three.Metadata.Annotations["cotenant.io/load"] = "0.5"
	if kindOf(three) == kindOf(one) {
		t.Error("one has another load")
	}
	four.Metadata.Labels = map[string]string{"kubevirt.io": "virt-launcher"}
	if kindOf(four) != "" {
		t.Error("the inventory may know a guest by its name")
	}
	one.Metadata.Labels = map[string]string{"app": "db", "statefulset.kubernetes.io/pod-name": "db-0"}
	two.Metadata.Labels = map[string]string{"app": "db", "statefulset.kubernetes.io/pod-name": "db-1"}
	if kindOf(two) != kindOf(one) {
		t.Error("a StatefulSet numbers its pods")
	}
}

func TestHeartbeatsOfANodeAreNoChange(t *testing.T) {
	var m marks
	node := nodes("h1")[0].(*framework.NodeInfo)
	node.AddPodInfo(podInfo(t, pod("a", nil)))
	before, generation := m.of(node), node.Generation
	node.SetNode(node.Node().DeepCopy())
	if node.Generation == generation || m.of(node) != before {
		t.Error("the pods are the same")
	}
	node.AddPodInfo(podInfo(t, pod("b", nil)))
	if m.of(node) == before {
		t.Error("a pod came")
	}
}
