"""`shoal judge report`: what a judge's records say."""
