package accept

// OccupyInflation takes every place in which a body can be inflated, until the returned function is called.
func (a *Acceptor) OccupyInflation() (leave func()) {
	for range cap(a.inflation) {
		a.inflation <- struct{}{}
	}
	return func() {
		for range cap(a.inflation) {
			<-a.inflation
		}
	}
}
