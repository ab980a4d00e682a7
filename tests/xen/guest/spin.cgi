#!/bin/sh
# Keeps the guest's CPU busy for as many seconds as the query says; 0 ends it.
printf 'Content-Type: text/plain\r\n\r\n'
killall awk 2>/dev/null
[ "$QUERY_STRING" -gt 0 ] && setsid timeout "$QUERY_STRING" awk 'BEGIN { while (1) ; }' </dev/null >/dev/null 2>&1 &
echo "spinning $QUERY_STRING"
