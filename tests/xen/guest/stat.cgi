#!/bin/sh
# The guest's own account of its time and interrupts.
printf 'Content-Type: text/plain\r\n\r\n'
cat /proc/uptime /proc/stat /proc/interrupts
