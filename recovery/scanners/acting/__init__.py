"""How a scanner acts: one run at a time, through one door, under the mandate, the policies and the brakes."""
