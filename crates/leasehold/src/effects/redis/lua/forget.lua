-- Forgets operations whose time is over. ARGV 1 how many at most.
return {purge(tonumber(ARGV[1]), now())}
