package provider

import (
	"fmt"
	"os"
	"regexp"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
)

// Tests named TestAcc run OpenTofu or Terraform (TF_ACC=1) against the service that tests/integrations/test_terraform.py
// starts: h1 and h2 have 8 GB, `resident` 6 of them on h2, h3 takes nobody, and h4 is in rack b.

func steps(t *testing.T, steps ...resource.TestStep) {
	t.Helper()
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: map[string]func() (tfprotov6.ProviderServer, error){
			"cotenant": providerserver.NewProtocol6WithError(New()),
		},
		Steps: steps,
	})
}

func asking(arguments string) string {
	return fmt.Sprintf(`
provider "cotenant" {
  url        = %q
  token_file = %q
}
data "cotenant_placements" "web" {
%s
}
`, os.Getenv("COTENANT_TEST_URL"), os.Getenv("COTENANT_TEST_TOKEN_FILE"), arguments)
}

func web(more string) string {
	return "  instance {\n    id = \"web-1\"\n    " + more + "\n  }"
}

func has(key, value string) resource.TestCheckFunc {
	return resource.TestCheckResourceAttr("data.cotenant_placements.web", key, value)
}

func fails(arguments, with string) resource.TestStep {
	return resource.TestStep{Config: asking(arguments), ExpectError: regexp.MustCompile(with)}
}

func TestAccInstancesOfOneQuestionCountForEachOther(t *testing.T) {
	steps(t, resource.TestStep{
		Config: asking(`
  instance {
    id        = "web-1"
    vcpus     = 1
    memory_mb = 1536
    workload  = "batch"
    labels    = { class = "web" }
  }
  instance {
    id        = "web-2"
    vcpus     = 1
    memory_mb = 6144
    workload  = "batch"
  }
  constraints {
    kind     = "kvm"
    affinity = []
    exclude  = ["h9"]
  }
  limit = 3`),
		// After a plan and an apply the harness plans once more, and fails where anything would change.
		Check: resource.ComposeAggregateTestCheckFunc(
			has("placements.%", "2"),
			has("placements.web-1.candidates.#", "2"),
			has("placements.web-2.host", "h1"),
			has("placements.web-2.candidates.#", "1"),
			has("placements.web-2.candidates.0.host", "h1"),
			resource.TestMatchResourceAttr("data.cotenant_placements.web", "placements.web-1.candidates.0.throughput_ratio.lower", regexp.MustCompile(`^(0\.\d+|1)$`)),
			resource.TestCheckResourceAttrSet("data.cotenant_placements.web", "placements.web-1.candidates.0.score"),
		),
	})
}

func TestAccConstraintsAndAnInstanceLikeAnother(t *testing.T) {
	steps(t, resource.TestStep{
		Config: asking(web(`like = "busy"`) + `
  constraints {
    labels = { rack = "b" }
  }
  objective = "pack"`),
		Check: resource.ComposeAggregateTestCheckFunc(has("placements.web-1.host", "h4"), has("placements.web-1.candidates.#", "1")),
	})
}

func TestAccAJointOrderFindsRoomThatTheGivenOrderDoesNot(t *testing.T) {
	burst := `
  instance {
    id        = "small"
    vcpus     = 1
    memory_mb = 1536
  }
  instance {
    id        = "big"
    vcpus     = 1
    memory_mb = 8000
  }
  hosts = ["h1", "h2"]
`
	steps(t,
		fails(burst, `No host can take big`), // small takes h1, which is the only one that has room for big
		resource.TestStep{
			Config: asking(burst + "order = \"joint\"\ntime_limit_s = 2"),
			Check:  resource.ComposeAggregateTestCheckFunc(has("placements.small.host", "h2"), has("placements.big.host", "h1")),
		},
		fails(burst+"order = \"joint\"\nlimit = 3", `leave limit out`),
	)
}

func TestAccNoHostIsAnErrorWithReasons(t *testing.T) {
	steps(t,
		fails(web("vcpus = 1\n    memory_mb = 1e6"), `(?s)No host can take web-1.*capacity\.memory: `),
		fails(web("vcpus = 1\n    memory_mb = 1024")+"\nhosts = []", `No host can take web-1`),
	)
}

func TestAccWhatTheServiceRefusesIsToldInItsWords(t *testing.T) {
	steps(t,
		fails(web(``), `(?s)its\s+size\s+is\s+needed`),
		fails(web(``)+"\nobjective = \"best\"", `(?s)objective.*input\.invalid`),
		fails(web(`like = "nobody"`), `(?s)there\s+is\s+no\s+instance\s+nobody`),
	)
}

func TestAccWhatIsMisspeltOrMissingIsRefused(t *testing.T) {
	steps(t,
		fails(web(`vcpu = 2`), `Did you mean "vcpus"`),
		fails(`objective = "total"`, `(?s)instance.*must have`),
	)
}

func TestAccAnInstanceStaysWhereIgnoredChangesSaySo(t *testing.T) {
	where := func(hosts string) string {
		return asking(web("vcpus = 1\n    memory_mb = 1024")+"\n  hosts = ["+hosts+"]") + `
resource "terraform_data" "web" {
  input = data.cotenant_placements.web.placements["web-1"].host
  lifecycle { ignore_changes = [input] }
}`
	}
	stays := resource.TestCheckResourceAttr("terraform_data.web", "output", "h1")
	steps(t,
		resource.TestStep{Config: where(`"h1"`), Check: stays},
		resource.TestStep{Config: where(`"h2"`), Check: resource.ComposeAggregateTestCheckFunc(stays, has("placements.web-1.host", "h2"))},
	)
}

func TestAccATokenThatIsNotValidIsTold(t *testing.T) {
	config := fmt.Sprintf("provider \"cotenant\" {\n url = %q\n}\ndata \"cotenant_placements\" \"web\" {\n%s\n}\n",
		os.Getenv("COTENANT_TEST_URL"), web(``))
	t.Setenv("COTENANT_TOKEN", "cot_0000000000000000_x")
	steps(t, resource.TestStep{Config: config, ExpectError: regexp.MustCompile(`auth\.`)})
}
