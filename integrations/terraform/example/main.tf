# Two instances, placed as Cotenant advises. COTENANT_SERVER says where it is, COTENANT_TOKEN who asks.
terraform {
  required_providers {
    cotenant = { source = "cotenant/cotenant" }
  }
}

locals {
  web = toset(["web-1", "web-2"])
}

data "cotenant_placements" "web" {
  dynamic "instance" {
    for_each = local.web
    content {
      id        = instance.key
      vcpus     = 2
      memory_mb = 4096
      workload  = "web-1k"
      service   = "latency"
    }
  }
}

# Stands for a virtual machine of your own provider, such as proxmox_virtual_environment_vm with node_name.
resource "terraform_data" "web" {
  for_each = local.web
  input    = data.cotenant_placements.web.placements[each.key].host
  lifecycle {
    ignore_changes = [input] # whoever runs stays: advice about the next plan is no reason to move
  }
}

output "hosts" {
  value = { for name, one in terraform_data.web : name => one.output }
}
