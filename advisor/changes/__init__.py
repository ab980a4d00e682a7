"""Carries changes out, proves what each brought, and takes them back: executors, the state machine, guard rails."""
