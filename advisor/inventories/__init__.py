"""Where inventories come from: files and clouds; each adapter gives an `advisor.domain.Inventory`."""
