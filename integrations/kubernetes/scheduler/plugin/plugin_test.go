package plugin

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// What a Cotenant service answered about the nodes h1 to h3: testdata/advice.json, made by the test of the real one.
func recorded(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "advice.json"))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// service answers what it is told to, and keeps what it was asked.
type service struct {
	*httptest.Server
	lock   sync.Mutex
	asked  []question
	bodies []string
	header []http.Header
	answer func(http.ResponseWriter, question)
}

func serve(t *testing.T, answer func(http.ResponseWriter, question)) *service {
	t.Helper()
	made := &service{answer: answer}
	made.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var asked question
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path != "/kubernetes/advice" || json.Unmarshal(body, &asked) != nil {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		made.lock.Lock()
		made.asked, made.bodies, made.header = append(made.asked, asked), append(made.bodies, string(body)), append(made.header, r.Header)
		reply := made.answer
		made.lock.Unlock()
		w.Header().Set("Content-Type", "application/json")
		reply(w, asked)
	}))
	t.Cleanup(made.Close)
	return made
}

func (s *service) questions() []question {
	s.lock.Lock()
	defer s.lock.Unlock()
	return slices.Clone(s.asked)
}

func (s *service) answers(answer func(http.ResponseWriter, question)) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.answer = answer
}

func text(body string) func(http.ResponseWriter, question) {
	return func(w http.ResponseWriter, _ question) { _, _ = w.Write([]byte(body)) }
}

func status(code int) func(http.ResponseWriter, question) {
	return func(w http.ResponseWriter, _ question) { w.WriteHeader(code) }
}

func made(t *testing.T, args string) *Plugin {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	one, err := New(ctx, &runtime.Unknown{Raw: []byte(args)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return one.(*Plugin)
}

// asking of `address`: an answer may take as long as a busy machine needs, and a rest is short.
func asking(t *testing.T, address string) *Plugin {
	t.Helper()
	p := made(t, `{"url": "`+address+`", "timeout": "20s", "rest": "300ms"}`)
	p.tables.watch = 0 // nobody else may be placing
	return p
}

func pod(uid string, annotations map[string]string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web-" + uid, Namespace: "prod", UID: types.UID(uid), Annotations: annotations},
		Spec: v1.PodSpec{Containers: []v1.Container{{
			Name: "web", Image: "nginx", Env: []v1.EnvVar{{Name: "PASSWORD", Value: "secret"}},
			Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("500m")}},
		}}},
	}
}

func guest(uid string) *v1.Pod {
	return pod(uid, map[string]string{"cotenant.io/workload": "batch", "kubectl.kubernetes.io/last-applied": "much"})
}

func nodes(names ...string) []fwk.NodeInfo {
	found := make([]fwk.NodeInfo, 0, len(names))
	for _, name := range names {
		info := framework.NewNodeInfo()
		info.SetNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		found = append(found, info)
	}
	return found
}

func podInfo(t *testing.T, one *v1.Pod) fwk.PodInfo {
	t.Helper()
	info, err := framework.NewPodInfo(one)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// cycle is one pod's, up to where it would be reserved: what Filter says of each node, and Score.
func cycle(p *Plugin, one *v1.Pod, named []fwk.NodeInfo) (fwk.CycleState, map[string]*fwk.Status, map[string]int64) {
	state, ctx := framework.NewCycleState(), context.Background()
	refused, scores := map[string]*fwk.Status{}, map[string]int64{}
	_, first := p.PreFilter(ctx, state, one, named)
	for _, node := range named {
		if !first.IsSkip() {
			if said := p.Filter(ctx, state, one, node); !said.IsSuccess() {
				refused[node.Node().Name] = said
			}
		}
		if p.PreScore(ctx, state, one, named).IsSuccess() {
			scores[node.Node().Name], _ = p.Score(ctx, state, one, node)
		}
	}
	return state, refused, scores
}

const freely = `{"FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "Scores": {"h1": 100, "h2": 40}, "Error": ""}`

func TestOneQuestionAnswersFilterAndScoreOfAllNodes(t *testing.T) {
	there := serve(t, text(string(recorded(t))))
	_, refused, scores := cycle(asking(t, there.URL), guest("a"), nodes("h1", "h2", "h3"))
	if len(there.questions()) != 1 {
		t.Fatalf("asked %d times", len(there.questions()))
	}
	if refused["h2"].Code() != fwk.Unschedulable || refused["h3"].Code() != fwk.UnschedulableAndUnresolvable || len(refused) != 2 {
		t.Errorf("refused %v", refused)
	}
	if scores["h1"] <= 0 || scores["h1"] > 100 || scores["h2"] != 0 {
		t.Errorf("scores %v", scores)
	}
}

func TestAPodThatSaysNothingCostsNothing(t *testing.T) {
	there := serve(t, text(freely))
	p := asking(t, there.URL)
	state, refused, scores := cycle(p, pod("a", map[string]string{"other.io/x": "1"}), nodes("h1"))
	p.Reserve(context.Background(), state, pod("a", nil), "h1")
	if len(refused)+len(scores)+len(there.questions()) != 0 || !p.ledger.empty() {
		t.Errorf("refused %v, scores %v, asked %v", refused, scores, there.questions())
	}
}

func TestWhoAsks(t *testing.T) {
	launcher, other, requests, labelled := pod("a", nil), pod("b", nil), pod("c", nil), pod("d", nil)
	launcher.Labels = map[string]string{"kubevirt.io": "virt-launcher"}
	other.Labels = map[string]string{"kubevirt.io": "virt-handler"}
	requests.Spec.Containers[0].Resources.Requests["cotenant.io/advised"] = resource.MustParse("1")
	labelled.Labels = map[string]string{"cotenant.io/load": "0.5"}
	for one, want := range map[*v1.Pod]bool{launcher: true, other: false, requests: true, labelled: true, guest("e"): true} {
		if asks(one) != want {
			t.Errorf("%s: %v", one.Name, !want)
		}
	}
}

func TestOnlyWhatIsReadOfAPodIsSent(t *testing.T) {
	there := serve(t, text(freely))
	cycle(asking(t, there.URL), guest("a"), nodes("h1"))
	sent := there.bodies[0]
	for _, never := range []string{"secret", "last-applied"} {
		if strings.Contains(sent, never) {
			t.Errorf("%s was sent: %s", never, sent)
		}
	}
	for _, always := range []string{`"cotenant.io/workload":"batch"`, `"uid":"a"`, `"cpu":"500m"`, `"image":"nginx"`, `"namespace":"prod"`} {
		if !strings.Contains(sent, always) {
			t.Errorf("%s was not sent: %s", always, sent)
		}
	}
}

func TestTheTokenIsReadAnewAndTheTimeIsTold(t *testing.T) {
	there := serve(t, text(freely))
	file := filepath.Join(t.TempDir(), "token")
	write(t, file, "first\n")
	p := made(t, `{"url": "`+there.URL+`/", "timeout": "20s", "tokenFile": "`+file+`"}`)
	cycle(p, guest("a"), nodes("h1"))
	write(t, file, "second\n")
	cycle(p, guest("b"), nodes("h1"))
	first, second := there.header[0], there.header[1]
	if first.Get("Authorization") != "Bearer first" || second.Get("Authorization") != "Bearer second" || first.Get("X-Request-Timeout") != "20" {
		t.Errorf("%v %v", first, second)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestAPodThatSaysSomethingWrongIsToldWhat(t *testing.T) {
	there := serve(t, text(`{"FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "Scores": {}, "Error": "cotenant.io/worklod is not known; is cotenant.io/workload meant?"}`))
	_, said := asking(t, there.URL).PreFilter(context.Background(), framework.NewCycleState(), guest("a"), nodes("h1"))
	if said.Code() != fwk.UnschedulableAndUnresolvable || !strings.Contains(said.Message(), "is cotenant.io/workload meant?") {
		t.Errorf("%v", said)
	}
}

// Every way in which a service can be away: the pod goes on without it, and so do those after it, without waiting.
func TestAServiceThatIsAwayIsLeftAlone(t *testing.T) {
	away := map[string]func(http.ResponseWriter, question){
		"hangs":          func(http.ResponseWriter, question) { time.Sleep(3 * time.Second) },
		"fails":          status(http.StatusInternalServerError),
		"is busy":        status(http.StatusServiceUnavailable),
		"knows us not":   status(http.StatusUnauthorized),
		"is older":       status(http.StatusNotFound),
		"sends us on":    status(http.StatusFound),
		"answers {}":     text(`{}`),
		"answers null":   text(`null`),
		"answers a list": text(`[]`),
		"answers a page": text(`<html>welcome</html>`),
		"answers half":   text(freely[:40]),
		"hangs up": func(w http.ResponseWriter, _ question) {
			connection, _, _ := w.(http.Hijacker).Hijack()
			_ = connection.Close()
		},
	}
	for name, answer := range away {
		t.Run(name, func(t *testing.T) {
			there := serve(t, answer)
			p := made(t, `{"url": "`+there.URL+`", "timeout": "2s", "rest": "2400ms"}`)
			for _, uid := range []string{"a", "b", "c"} {
				state, refused, scores := cycle(p, guest(uid), nodes("h1", "h2"))
				p.Reserve(context.Background(), state, guest(uid), "h1")
				if len(refused)+len(scores) != 0 {
					t.Errorf("refused %v, scores %v", refused, scores)
				}
			}
			if len(there.questions()) != 1 {
				t.Errorf("asked %d times", len(there.questions()))
			}
			there.answers(text(freely))
			time.Sleep(350 * time.Millisecond) // an eighth of the rest
			if _, _, scores := cycle(p, guest("d"), nodes("h1", "h2")); scores["h1"] != 100 {
				t.Errorf("after the rest: %v", scores)
			}
		})
	}
}

func TestNobodyListensOrTheAddressIsWrong(t *testing.T) {
	there := serve(t, text(freely))
	there.Close()
	_, refused, scores := cycle(asking(t, there.URL), guest("a"), nodes("h1"))
	if len(refused)+len(scores) != 0 {
		t.Errorf("refused %v, scores %v", refused, scores)
	}
}

func TestWhileOneQuestionIsTriedAfterARestNobodyElseWaits(t *testing.T) {
	there := serve(t, status(http.StatusInternalServerError))
	p := asking(t, there.URL)
	cycle(p, guest("a"), nodes("h1"))
	time.Sleep(350 * time.Millisecond)
	if !p.client.begin() || p.client.begin() {
		t.Error("not exactly one question is tried")
	}
}

func TestWhereAReplicaEndsAnotherIsAskedAtOnce(t *testing.T) {
	there := serve(t, text(freely))
	p := asking(t, there.URL)
	cycle(p, guest("a"), nodes("h1", "h2"))
	ended := false
	there.answers(func(w http.ResponseWriter, asked question) {
		if ended {
			text(freely)(w, asked)
			return
		}
		ended = true
		connection, _, _ := w.(http.Hijacker).Hijack()
		_ = connection.Close()
	})
	if _, _, scores := cycle(p, guest("b"), nodes("h1", "h2")); scores["h2"] != 40 {
		t.Errorf("it went on without advice: %v", scores)
	}
	if asked := about(there.questions()); asked != 3 {
		t.Errorf("asked %d times", asked)
	}
}

func TestAQuestionThatIsRefusedStopsNoOtherPod(t *testing.T) {
	there := serve(t, status(http.StatusUnprocessableEntity))
	p := asking(t, there.URL)
	_, refused, scores := cycle(p, guest("a"), nodes("h1"))
	if len(refused)+len(scores) != 0 {
		t.Errorf("refused %v, scores %v", refused, scores)
	}
	there.answers(text(freely))
	if _, _, scores := cycle(p, guest("b"), nodes("h1", "h2")); scores["h2"] != 40 {
		t.Errorf("the next pod: %v", scores)
	}
}

func TestScoresOutOfRangeFailNoPod(t *testing.T) {
	there := serve(t, text(`{"Scores": {"h1": 1000, "h2": -3}}`))
	_, _, scores := cycle(asking(t, there.URL), guest("a"), nodes("h1", "h2", "h3"))
	if scores["h1"] != 100 || scores["h2"] != 0 || scores["h3"] != 0 {
		t.Errorf("%v", scores)
	}
}

func TestTheNextQuestionTellsWhereThePodsBeforeItWent(t *testing.T) {
	there := serve(t, text(freely))
	p, ctx := asking(t, there.URL), context.Background()
	p.soon = time.Hour
	state, _, _ := cycle(p, guest("a"), nodes("h1", "h2"))
	p.Reserve(ctx, state, guest("a"), "h2")
	cycle(p, guest("b"), nodes("h1", "h2"))
	asked := there.questions()
	if len(asked) != 2 || len(asked[1].Placed) != 1 || asked[1].Placed[0].NodeName != "h2" || asked[1].Placed[0].Pod.Metadata.Uid != "a" {
		t.Fatalf("%+v", asked)
	}
	if !p.ledger.empty() {
		t.Errorf("it would be told again")
	}
}

func TestWithoutANextPodItIsToldSoon(t *testing.T) {
	there := serve(t, text(freely))
	p, ctx := asking(t, there.URL), context.Background()
	state, _, _ := cycle(p, guest("a"), nodes("h1"))
	p.Reserve(ctx, state, guest("a"), "h1")
	eventually(t, func() bool { return len(there.questions()) == 2 })
	told := there.questions()[1]
	if told.Pod != nil || len(told.Placed) != 1 {
		t.Errorf("%+v", told)
	}
	p.Unreserve(ctx, state, guest("a"), "h1")
	eventually(t, func() bool { return len(there.questions()) == 3 })
	if told = there.questions()[2]; len(told.Placed) != 0 || len(told.Released) != 1 || told.Released[0].Metadata.Uid != "a" {
		t.Errorf("%+v", told)
	}
}

func TestAPlacementThatIsTakenBackAtOnceIsNeverTold(t *testing.T) {
	there := serve(t, text(freely))
	p, ctx := asking(t, there.URL), context.Background()
	state, _, _ := cycle(p, guest("a"), nodes("h1"))
	p.soon = time.Hour
	p.Reserve(ctx, state, guest("a"), "h1")
	p.Unreserve(ctx, state, guest("a"), "h1")
	if !p.ledger.empty() {
		t.Error("something is left to tell")
	}
}

func TestWhatCouldNotBeToldIsToldLater(t *testing.T) {
	there := serve(t, text(freely))
	p, ctx := asking(t, there.URL), context.Background()
	state, _, _ := cycle(p, guest("a"), nodes("h1"))
	there.answers(status(http.StatusInternalServerError))
	p.Reserve(ctx, state, guest("a"), "h1")
	eventually(t, func() bool { return len(there.questions()) == 2 })
	there.answers(text(freely))
	eventually(t, func() bool { return len(there.questions()) == 3 })
	if told := there.questions()[2]; len(told.Placed) != 1 || told.Placed[0].Pod.Metadata.Uid != "a" {
		t.Errorf("%+v", told)
	}
}

func TestAPodThatNobodyAnsweredAboutCountsWhereItGoes(t *testing.T) {
	there := serve(t, status(http.StatusInternalServerError))
	p, ctx := asking(t, there.URL), context.Background()
	p.soon = time.Hour
	state, _, _ := cycle(p, guest("a"), nodes("h1", "h2"))
	p.Reserve(ctx, state, guest("a"), "h1")
	plain, _, _ := cycle(p, pod("plain", nil), nodes("h1", "h2"))
	p.Reserve(ctx, plain, pod("plain", nil), "h2")
	state, _, _ = cycle(p, guest("back"), nodes("h1", "h2"))
	p.Reserve(ctx, state, guest("back"), "h2")
	p.Unreserve(ctx, state, guest("back"), "h2")
	there.answers(text(freely))
	time.Sleep(350 * time.Millisecond) // the rest
	cycle(p, guest("b"), nodes("h1", "h2"))
	asked := there.questions()
	if told := asked[len(asked)-1].Placed; len(told) != 1 || told[0].Pod.Metadata.Uid != "a" || told[0].NodeName != "h1" {
		t.Errorf("%+v", told)
	}
}

func TestAPodThatIsGoneIsNotToldOf(t *testing.T) {
	there := serve(t, text(freely))
	p, ctx := asking(t, there.URL), context.Background()
	p.soon = time.Hour
	for _, uid := range []string{"a", "b"} {
		state, _, _ := cycle(p, guest(uid), nodes("h1"))
		p.Reserve(ctx, state, guest(uid), "h1")
	}
	p.deleted(cache.DeletedFinalStateUnknown{Key: "prod/web-b", Obj: guest("b")})
	if !p.ledger.empty() {
		t.Error("something is left to tell")
	}
}

func TestAPodThatGoesWhileItsPlacementIsToldIsReleased(t *testing.T) {
	there := serve(t, text(freely))
	p, ctx := asking(t, there.URL), context.Background()
	p.soon = time.Hour
	state, _, _ := cycle(p, guest("a"), nodes("h1"))
	p.Reserve(ctx, state, guest("a"), "h1")
	there.answers(func(w http.ResponseWriter, asked question) {
		if len(asked.Placed) > 0 {
			p.deleted(guest("a"))
		}
		text(freely)(w, asked)
	})
	cycle(p, guest("b"), nodes("h1"))
	cycle(p, guest("c"), nodes("h2")) // of another node, so that somebody is asked
	asked := there.questions()
	if last := asked[len(asked)-1]; len(last.Released) != 1 || last.Released[0].Metadata.Uid != "a" {
		t.Errorf("%+v", last)
	}
	p.deleted(guest("a"))
	if !p.ledger.empty() {
		t.Error("it is released again, though the sync reports it")
	}
}

func TestPlacementsThatTheServiceRefusesSpoilNoQuestion(t *testing.T) {
	there := serve(t, func(w http.ResponseWriter, asked question) {
		if len(asked.Placed) > 0 {
			w.WriteHeader(http.StatusUnprocessableEntity)
			return
		}
		text(freely)(w, asked)
	})
	p := asking(t, there.URL)
	state, _, _ := cycle(p, guest("a"), nodes("h1"))
	p.Reserve(context.Background(), state, guest("a"), "h1")
	eventually(t, func() bool { return len(there.questions()) == 2 && p.ledger.empty() })
	if _, _, scores := cycle(p, guest("b"), nodes("h1", "h2")); scores["h2"] != 40 {
		t.Errorf("the next pod: %v", scores)
	}
}

func TestTheLedgerKeepsTheNewestOfAPod(t *testing.T) {
	var l ledger
	l.place(slim(guest("a")), "h1")
	placed, released := l.take()
	l.release(slim(guest("a")))
	l.giveBack(placed, released)
	if placed, released = l.take(); len(placed) != 0 || len(released) != 1 {
		t.Errorf("released meanwhile: %v %v", placed, released)
	}
	l.place(slim(guest("a")), "h2")
	l.giveBack(placed, released)
	if placed, released = l.take(); len(placed) != 1 || placed[0].node != "h2" || len(released) != 0 {
		t.Errorf("placed anew meanwhile: %v %v", placed, released)
	}
}

func TestTheLedgerDoesNotGrowWithoutBound(t *testing.T) {
	var l ledger
	for i := range 10 * mostPlaced {
		l.place(slim(pod(string(rune('a'+i)), nil)), "h1")
	}
	if placed, _ := l.take(); len(placed) != mostPlaced || len(l.placed) > 4*mostPlaced {
		t.Errorf("%d taken, %d left", len(placed), len(l.placed))
	}
	l.placed = []entry{{slim(guest("old")), "h1", time.Now().Add(-2 * stale)}, {slim(guest("new")), "h1", time.Now()}}
	if placed, _ := l.take(); len(placed) != 1 || placed[0].pod.Metadata.Uid != "new" {
		t.Errorf("what the sync has told long ago: %v", placed)
	}
}

// Preemption tries nodes without pods. h1 does without "big", h2 does not whoever leaves.
func TestPreemptionAsksWithoutItsVictims(t *testing.T) {
	there := serve(t, func(w http.ResponseWriter, asked question) {
		found := answer{FailedNodes: map[string]string{}, Scores: map[string]int64{}}
		for _, node := range asked.NodeNames {
			if node == "h1" && slices.Contains(asked.Without, "big") {
				found.Scores[node] = 80
			} else {
				found.FailedNodes[node] = "db-1 would fall below its limit"
			}
		}
		_ = json.NewEncoder(w).Encode(found)
	})
	p, ctx := asking(t, there.URL), context.Background()
	named := nodes("h1", "h2")
	state := framework.NewCycleState()
	if _, said := p.PreFilter(ctx, state, guest("a"), named); !said.IsSuccess() {
		t.Fatal(said)
	}
	small, big := podInfo(t, pod("small", nil)), podInfo(t, pod("big", nil))
	for _, node := range named {
		tried := state.Clone()
		if p.Filter(ctx, tried, guest("a"), node).IsSuccess() {
			t.Errorf("%s passes with everybody there", node.Node().Name)
		}
		p.RemovePod(ctx, tried, guest("a"), small, node)
		p.RemovePod(ctx, tried, guest("a"), big, node)
		if passes := p.Filter(ctx, tried, guest("a"), node).IsSuccess(); passes != (node.Node().Name == "h1") {
			t.Errorf("%s without both: %v", node.Node().Name, passes)
		}
		p.AddPod(ctx, tried, guest("a"), small, node)
		if passes := p.Filter(ctx, tried, guest("a"), node).IsSuccess(); passes != (node.Node().Name == "h1") {
			t.Errorf("%s without big: %v", node.Node().Name, passes)
		}
		p.AddPod(ctx, tried, guest("a"), big, node)
		if p.Filter(ctx, tried, guest("a"), node).IsSuccess() {
			t.Errorf("%s passes with both back", node.Node().Name)
		}
	}
	if p.Filter(ctx, state, guest("a"), named[0]).IsSuccess() {
		t.Error("the copies of the state were no copies")
	}
}

func TestVictimsThatHaveLeftDoNotCountBeforeTheInventoryHasHeardOfIt(t *testing.T) {
	there := serve(t, func(w http.ResponseWriter, asked question) {
		found := answer{FailedNodes: map[string]string{"h1": "full"}, Scores: map[string]int64{}}
		if slices.Contains(asked.Without, "big") {
			found = answer{FailedNodes: map[string]string{}, Scores: map[string]int64{"h1": 80}}
		}
		_ = json.NewEncoder(w).Encode(found)
	})
	p, ctx := asking(t, there.URL), context.Background()
	named, big := nodes("h1"), podInfo(t, pod("big", nil))
	named[0].AddPodInfo(big)
	state := framework.NewCycleState()
	p.PreFilter(ctx, state, guest("a"), named)
	p.RemovePod(ctx, state, guest("a"), big, named[0])
	if !p.Filter(ctx, state, guest("a"), named[0]).IsSuccess() {
		t.Fatal("it does not pass without its victim")
	}
	if p.PreFilter(ctx, framework.NewCycleState(), guest("a"), named); len(there.questions()[2].Without) != 0 {
		t.Error("the victim is still there")
	}
	if err := named[0].RemovePod(klog.Background(), big.GetPod()); err != nil {
		t.Fatal(err)
	}
	after := framework.NewCycleState()
	p.PreFilter(ctx, after, guest("a"), named)
	if asked := there.questions(); !slices.Equal(asked[3].Without, []string{"big"}) {
		t.Errorf("asked %v", asked[3])
	}
	p.Reserve(ctx, after, guest("a"), "h1")
	p.PreFilter(ctx, framework.NewCycleState(), guest("a"), named)
	if asked := there.questions(); len(asked[4].Without) != 0 {
		t.Errorf("later it asked %v", asked[4])
	}
}

func TestPreemptionDoesNotWaitForLong(t *testing.T) {
	there := serve(t, text(`{"FailedNodes": {"h1": "full"}, "Scores": {}}`))
	p, ctx := asking(t, there.URL), context.Background()
	named, state := nodes("h1"), framework.NewCycleState()
	p.PreFilter(ctx, state, guest("a"), named)
	adviceIn(state).patience.until = time.Now().Add(-time.Second)
	p.RemovePod(ctx, state, guest("a"), podInfo(t, pod("small", nil)), named[0])
	if p.Filter(ctx, state, guest("a"), named[0]).IsSuccess() || len(there.questions()) != 1 {
		t.Errorf("asked %d times", len(there.questions()))
	}
}

func TestPodsThatAskAreNotBatchedAndAllOthersAre(t *testing.T) {
	p := asking(t, "http://127.0.0.1:9")
	if _, said := p.SignPod(context.Background(), pod("a", nil)); !said.IsSuccess() {
		t.Errorf("%v", said)
	}
	if _, said := p.SignPod(context.Background(), guest("a")); said.Code() != fwk.Unschedulable {
		t.Errorf("%v", said)
	}
}

func TestARefusedPodIsTriedAgainWhenThatCanHelp(t *testing.T) {
	events, _ := asking(t, "http://127.0.0.1:9").EventsToRegister(context.Background())
	hint, mine, other := events[0].QueueingHintFn, guest("a"), pod("b", nil)
	bound := pod("c", nil)
	bound.Spec.NodeName = "h1"
	for name, one := range map[string]struct {
		before, after any
		want          fwk.QueueingHint
	}{
		"it says else":                {mine, mine, fwk.Queue},
		"another changes":             {other, other, fwk.QueueSkip},
		"a bound pod leaves":          {bound, nil, fwk.Queue},
		"a pod that was nowhere goes": {other, nil, fwk.QueueSkip},
	} {
		if got, err := hint(klog.Background(), mine, one.before, one.after); err != nil || got != one.want {
			t.Errorf("%s: %v %v", name, got, err)
		}
	}
}

func TestWrongArgumentsAreToldAtTheStart(t *testing.T) {
	for raw, want := range map[string]string{
		`{}`:                                   "url is no address",
		`{"url": "cotenant:8080"}`:             "url is no address",
		`{"url": "http://any:token@cotenant"}`: "tokenFile",
		`{"url": "http://c", "timeOut": "1s", "tokenfil": "x"}`:    "tokenfil",
		`{"url": "http://c", "timeout": "0s"}`:                     "times above 0",
		`{"url": "http://c", "tokenFile": "/nowhere/token"}`:       "tokenFile",
		`{"url": "https://c", "caFile": "plugin_test.go"}`:         "no certificate",
		`{"url": "https://c", "caFile": "/nowhere/authority.pem"}`: "caFile",
	} {
		if _, err := New(context.Background(), &runtime.Unknown{Raw: []byte(raw)}, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", raw, err)
		}
	}
	if _, err := New(context.Background(), nil, nil); err == nil || !strings.Contains(err.Error(), "args.url") {
		t.Errorf("none: %v", err)
	}
}

// With COTENANT_TEST_URL: what a real service with the nodes h1 to h3 answers. It writes what the others replay.
func TestARealServiceAnswers(t *testing.T) {
	address := os.Getenv("COTENANT_TEST_URL")
	if address == "" {
		t.Skip("COTENANT_TEST_URL is the address of no service: tests/integrations starts one")
	}
	p := made(t, `{"url": "`+address+`", "timeout": "20s", "tokenFile": "`+os.Getenv("COTENANT_TEST_TOKEN_FILE")+`"}`)
	ctx, named := context.Background(), nodes("h1", "h2", "h3", "new")
	one := guest("a")
	one.Spec.Containers[0].Resources.Requests[v1.ResourceMemory] = resource.MustParse("4Gi")
	state, refused, scores := cycle(p, one, named)
	if refused["h2"].Code() != fwk.Unschedulable || refused["h3"].Code() != fwk.UnschedulableAndUnresolvable {
		t.Errorf("refused %v", refused)
	}
	if scores["h1"] < 50 || scores["new"] != 100 {
		t.Errorf("scores %v", scores)
	}
	p.Reserve(ctx, state, one, "h1")
	next := guest("b")
	next.Spec.Containers[0].Resources.Requests[v1.ResourceMemory] = resource.MustParse("6Gi")
	if _, refused, _ = cycle(p, next, named); refused["h1"].Code() != fwk.Unschedulable {
		t.Errorf("the pod before it does not count: %v", refused)
	}
	p.Unreserve(ctx, state, one, "h1")
	if _, refused, _ = cycle(p, next, named); refused["h1"] != nil {
		t.Errorf("the pod that gave up still counts: %v", refused)
	}
	preempting := framework.NewCycleState()
	p.PreFilter(ctx, preempting, one, named)
	p.RemovePod(ctx, preempting, one, podInfo(t, pod("resident", nil)), named[1])
	if said := p.Filter(ctx, preempting, one, named[1]); !said.IsSuccess() {
		t.Errorf("without the resident: %v", said)
	}
	wrong := pod("c", map[string]string{"cotenant.io/worklod": "batch"})
	if _, said := p.PreFilter(ctx, framework.NewCycleState(), wrong, named); !strings.Contains(said.Message(), "is cotenant.io/workload meant?") {
		t.Errorf("%v", said)
	}
}

func eventually(t *testing.T, holds func() bool) {
	t.Helper()
	for range 1000 {
		if holds() {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatal("it did not happen in 20 s")
}
